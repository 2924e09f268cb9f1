"""vLLM on a CPU, the child: its engine in this process, compiled.

``python -m bench.peers.vllm_engine MODEL DTYPE SLOTS KV_TOKENS`` in vLLM's own environment. KV_TOKENS: size of its KV
cache. Token ids alone are asked for, so that it need not make text of them.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from bench.peers.child import Generate, serve

BLOCK_TOKENS = 32
"""Its attention on CPUs takes multiples of 32; its default of 128 wastes memory and time on short chats."""
CONTEXT_TOKENS = 2048
KV_BYTES = 2 << 30
"""What it would take without the number of blocks; not given, it wants nearly all of the machine's memory."""


def load(model_path: str, dtype: str, slots: str, kv_tokens: str) -> Generate:
    from vllm import LLM

    engine = LLM(
        model=model_path,
        dtype=dtype,
        block_size=BLOCK_TOKENS,
        max_num_seqs=int(slots),
        max_num_batched_tokens=CONTEXT_TOKENS,
        max_model_len=min(CONTEXT_TOKENS, int(kv_tokens)),
        kv_cache_memory_bytes=KV_BYTES,
        num_gpu_blocks_override=int(kv_tokens) // BLOCK_TOKENS,
        enable_prefix_caching=True,
        disable_log_stats=True,
        seed=0,
    )
    return functools.partial(_generate, engine)


def _generate(engine: Any, prompts: list[list[int]], outputs: list[int]) -> list[list[int]]:
    from vllm import SamplingParams

    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    sampling = [
        SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False) for count in outputs
    ]
    return [list(output.outputs[0].token_ids) for output in engine.generate(asked, sampling, use_tqdm=False)]


def about() -> dict[str, Any]:
    import torch
    import vllm

    return {"version": vllm.__version__, "threads": torch.get_num_threads(), "dtype": sys.argv[2]}


if __name__ == "__main__":
    serve(functools.partial(load, *sys.argv[1:]), about)
