"""transformers, the child: ``generate`` over a static padded batch, or its own continuous batching.

``python -m bench.peers.huggingface MODEL DTYPE static|continuous``
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from bench.peers.child import Generate, serve

STATIC_BATCH = 16
CACHE_PAGES, STEP_TOKENS = 128, 1024
"""Of continuous batching: pages of 256 tokens, tokens of a step.

By itself it sizes both by the machine's memory, and with them masks of every token of a step over the whole cache:
minutes to fill in, gigabytes to read.
"""


def load(model_path: str, dtype: str, mode: str) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=getattr(torch, dtype)).eval()
    if mode == "static":
        return functools.partial(_static, model)
    # Without an end token every request runs to its own number of tokens.
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=2048)
    sizes = ContinuousBatchingConfig(num_blocks=CACHE_PAGES, max_batch_tokens=STEP_TOKENS)
    # Entered and never left: it goes with the process, to which it is kept.
    context = model.continuous_batching_context_manager(generation_config=generation, continuous_batching_config=sizes)
    manager = context.__enter__()
    manager.kept = context
    return functools.partial(_continuous, manager)


def _static(model: Any, prompts: list[list[int]], outputs: list[int]) -> list[list[int]]:
    """Batches of STATIC_BATCH in order, padded on the left; each batch runs as long as its longest answer."""
    import torch

    answers: list[list[int]] = []
    for begin in range(0, len(prompts), STATIC_BATCH):
        batch, counts = prompts[begin : begin + STATIC_BATCH], outputs[begin : begin + STATIC_BATCH]
        longest, count = max(len(prompt) for prompt in batch), max(counts)
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0
            )
        answers += [row[longest : longest + own].tolist() for row, own in zip(out, counts, strict=True)]
    return answers


def _continuous(manager: Any, prompts: list[list[int]], outputs: list[int]) -> list[list[int]]:
    """All requests through transformers' continuous batching, each with its own number of tokens."""
    ids = [
        manager.add_request(input_ids=prompt, max_new_tokens=count)
        for prompt, count in zip(prompts, outputs, strict=True)
    ]
    answers: dict[str, list[int]] = {}
    while len(answers) < len(ids):
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            answers[result.request_id] = list(result.generated_tokens)
    return [answers[id] for id in ids]


if __name__ == "__main__":
    serve(functools.partial(load, *sys.argv[1:]))
