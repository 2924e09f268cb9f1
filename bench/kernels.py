"""The Triton kernels on a CUDA device: how much of the memory's bandwidth they use, and their time beside torch's.

``share``: the bytes that a kernel cannot do without (a decode's KV entries; what a layer reads and writes) over its
time, as a share of what a plain copy on the device reaches in the same rounds. ``over_sdpa``, ``over_flex``: torch's
scaled_dot_product_attention and compiled flex_attention on the same keys and values, contiguous and without blocks,
over ours in time: above 1, ours is faster. Cases take turns, round by round; between two of them the cache is
overwritten. Every answer is compared with torch's before it is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.kernel_cases import Case, attention_cases, layer_cases
from bench.progress import progress
from bench.results import Results
from pagoda_kernels import Kernels, gpu_kernels

COPY_BYTES = 1 << 30
FLUSH_BYTES = 1 << 28
"""More than the second-level cache of any GPU."""

COPY_GOAL = ">=0.8"


@dataclass(frozen=True)
class Sample:
    """rounds: measured ones, behind warm_up. The rest: of the attention's shapes."""

    rounds: int
    warm_up: int
    sequences: int
    context: int
    kv_heads: int
    group: int
    head_size: int
    block_sizes: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    vocabulary: int


FULL = Sample(50, 10, 64, 4096, 8, 4, 128, (16, 32), (torch.float16, torch.bfloat16), 128_256)
QUICK = Sample(10, 3, 64, 4096, 8, 4, 128, (16,), (torch.bfloat16,), 128_256)


def run(results: Results, options: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("kernels needs a CUDA device: torch finds none on this machine")
    device = torch.device("cuda")
    kernels = gpu_kernels(device)
    if kernels.name != "triton":
        raise SystemExit("kernels needs Triton, which cannot be imported here")
    sample = QUICK if options.quick else FULL
    measure(results, sample, kernels, device, rounds=options.repeats or sample.rounds, compiled=True)


def measure(
    results: Results, sample: Sample, kernels: Kernels, device: torch.device, *, rounds: int, compiled: bool
) -> None:
    """All cases of ``sample``. compiled: flex_attention is, as it is meant to be used."""
    for dtype in sample.dtypes:
        name = str(dtype).removeprefix("torch.")
        for block_size in progress(sample.block_sizes, f"attention in {name}"):
            for kind in ("decode", "prefill"):
                cases = attention_cases(sample, kernels, device, dtype, block_size, kind=kind, compiled=compiled)
                _report(results, f"kernels.{kind}[{name},{block_size}]", cases, device, rounds, sample.warm_up)
        for label, case in progress(layer_cases(sample, kernels, device, dtype).items(), f"layers in {name}"):
            _report(results, f"kernels.{label}[{name}]", {"ours": case}, device, rounds, sample.warm_up)


def _report(
    results: Results, name: str, cases: dict[str, Case], device: torch.device, rounds: int, warm_up: int
) -> None:
    """Measure ``cases`` ("ours" among them, the rest are peers) and a copy in turns."""
    for peer, case in cases.items():
        if peer != "ours":
            torch.testing.assert_close(case.call(), cases["ours"].call(), rtol=2e-2, atol=2e-2, msg=f"{name}: {peer}")
    copy = _copy(device)
    seconds = in_turns({"copy": copy.call} | {key: case.call for key, case in cases.items()}, device, rounds, warm_up)
    results.add(f"{name}.us", [1e6 * second for second in seconds["ours"]], unit="us")
    needed = cases["ours"].bytes
    if needed:
        shares = [
            (needed / ours) / (copy.bytes / plain) for ours, plain in zip(seconds["ours"], seconds["copy"], strict=True)
        ]
        results.add(f"{name}.share", shares, goal=COPY_GOAL if ".decode[" in name else None)
    for peer in cases.keys() - {"ours"}:
        ratios = [theirs / ours for theirs, ours in zip(seconds[peer], seconds["ours"], strict=True)]
        results.add(f"{name}.over_{peer}", ratios)


def _copy(device: torch.device) -> Case:
    size = COPY_BYTES if device.type == "cuda" else 1 << 20
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return Case(lambda: target.copy_(source), 2 * size)


def in_turns(
    calls: dict[str, Callable[[], object]], device: torch.device, rounds: int, warm_up: int
) -> dict[str, list[float]]:
    """Seconds of each call in each round. On a CUDA device between events, so that the host's time is not in it."""
    flush = torch.empty(FLUSH_BYTES if device.type == "cuda" else 1, dtype=torch.uint8, device=device)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(warm_up + rounds):
        for name, call in calls.items():
            flush.zero_()
            seconds = _seconds(call, device)
            if round_number >= warm_up:
                found[name].append(seconds)
    return found


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1000
