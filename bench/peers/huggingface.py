"""transformers on the same machine: ``generate`` over a static padded batch, and its own continuous batching.

Run as a module it serves rounds: one JSON object a line on standard input, one answer a line on standard output.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any


class HuggingFace:
    """A child process with the model loaded once. ``mode``: ``static`` or ``continuous``."""

    def __init__(self, model: Path, dtype: str, mode: str) -> None:
        self.name = {"static": "hf_static", "continuous": "hf_cb"}[mode]
        command = [sys.executable, "-m", "bench.peers.huggingface", str(model), dtype, mode]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> HuggingFace:
        self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def generate(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> float:
        """Seconds for all prompts, each run to exactly its number of output tokens."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": list(prompts), "outputs": list(outputs)}) + "\n")
        self._process.stdin.flush()
        return self._read()["seconds"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")


def serve(model_path: str, dtype: str, mode: str) -> None:
    """The child: load, say so, then answer rounds until standard input ends."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=getattr(torch, dtype)).eval()
    with contextlib.ExitStack() as stack:
        if mode == "static":
            run = functools.partial(_static, model)
        else:
            # Without an end token every request runs to its own number of tokens.
            generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=2048)
            manager = stack.enter_context(model.continuous_batching_context_manager(generation_config=generation))
            run = functools.partial(_continuous, manager)
        _say({"ready": True})
        for line in sys.stdin:
            job = json.loads(line)
            begin = time.perf_counter()
            produced = run(job["prompts"], job["outputs"])
            seconds = time.perf_counter() - begin
            if produced != sum(job["outputs"]):
                raise RuntimeError(f"{produced} tokens instead of {sum(job['outputs'])}")
            _say({"seconds": seconds})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _static(model: Any, prompts: list[list[int]], outputs: list[int]) -> int:
    """Batches of 16 (in order), padded on the left; each batch runs as long as its longest answer."""
    import torch

    for begin in range(0, len(prompts), 16):
        batch, counts = prompts[begin : begin + 16], outputs[begin : begin + 16]
        longest = max(len(prompt) for prompt in batch)
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        count = max(counts)
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0
            )
        assert out.shape[1] == longest + count
    return sum(outputs)


def _continuous(manager: Any, prompts: list[list[int]], outputs: list[int]) -> int:
    """All requests through transformers' continuous batching, each with its own number of tokens."""
    for prompt, count in zip(prompts, outputs, strict=True):
        manager.add_request(input_ids=prompt, max_new_tokens=count)
    produced, waiting = 0, len(prompts)
    while waiting:
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            waiting -= 1
            produced += len(result.generated_tokens)
    return produced


if __name__ == "__main__":
    serve(*sys.argv[1:])
