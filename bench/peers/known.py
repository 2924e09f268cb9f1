"""Every peer by its name, each set up as it does best on a CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from bench.peers.environments import python_of
from bench.peers.peer import Peer
from pagoda_inference.model.machine import choose_dtype, physical_cores

IN_OUR_ENVIRONMENT = ("hf_cb", "hf_static")
INSTALLED = ("vllm", "llama")
PEERS = (*IN_OUR_ENVIRONMENT, *INSTALLED)

_HF_MODES = {"hf_cb": "continuous", "hf_static": "static"}


def make_peer(
    kind: str,
    model: Path,
    dtype: str,
    *,
    slots: int,
    kv_tokens: int,
    home: Path,
    name: str = "",
    say: Callable[[str], None] = print,
) -> Peer:
    """A peer of ``kind`` (one of PEERS), not started; its environment is made first where it has one.

    slots, kv_tokens: requests that run at once and size of the KV cache, where the peer can be told. home: folder of
    the environments. name: by which its results go; the kind by default. Raises PeerFailed.
    """
    name = name or kind
    if kind in _HF_MODES:
        return Peer(name, [sys.executable, "-P", "-m", "bench.peers.huggingface", str(model), dtype, _HF_MODES[kind]])
    python = python_of(kind, home, say)
    if kind == "vllm":
        arguments = [str(model), _vllm_dtype(dtype), str(slots), str(kv_tokens)]
        command = [str(python), "-P", "-m", "bench.peers.vllm_engine", *arguments]
        return Peer(name, command, _vllm_environment(python, home))
    command = [str(python), "-P", "-m", "bench.peers.llama_cpp_batches", str(slots), str(physical_cores())]
    return Peer(name, command)


def _vllm_dtype(dtype: str) -> str:
    """float32 instead of bfloat16 on a processor without instructions for it: there oneDNN has no such product for
    vLLM, and with the one that it falls back to it does not come through its warm-up in minutes."""
    has_bfloat16 = choose_dtype("auto", torch.device("cpu")) is torch.bfloat16
    return "float32" if dtype == "bfloat16" and not has_bfloat16 else dtype


def _vllm_environment(python: Path, home: Path) -> dict[str, str]:
    """As its documentation advises: its OpenMP runtime and allocator loaded first, a thread for each core.

    In one process, because with an engine process of its own it keeps a core free for the other one.
    """
    environment = python.parents[1]
    preloaded = [
        *environment.glob("lib/libiomp5.so"),
        *environment.glob("lib/python*/site-packages/vllm/libs/libtcmalloc*"),
    ]
    cache = home / "vllm-cache"
    return {
        "OMP_NUM_THREADS": str(physical_cores()),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "LD_PRELOAD": os.pathsep.join(map(str, preloaded)),
        "VLLM_CACHE_ROOT": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_AOT_COMPILE": "0",  # what it keeps of one start cannot be loaded by the next and is compiled anew
        "HF_HUB_OFFLINE": "1",
    }
