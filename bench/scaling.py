"""What a decode step costs: its time by batch and context, beside measured floors; and what it takes beside the model.

``decode``: the default model through the engine's own backend, every sequence with one new token behind a context that
lies in blocks of its own, filled before. ``floor.memory``: weights and KV entries of the step over the read bandwidth
that was measured in the same run. ``floor.products``: all linear layers of the model over as many rows, alone.
``overhead``: see bench/step_overhead.py. Drawn as an SVG plot into docs/ unless ``--quick``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench import step_overhead
from bench.progress import progress
from bench.report.plots import Series, lines
from bench.results import Results
from bench.roofline import product_seconds, read_bandwidth, weight_elements
from bench.workloads import random_tokens
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Backend, Chunk
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.loading import load_model
from pagoda_inference.settings import Settings

PLOT = Path(__file__).resolve().parents[1] / "docs/decode-step.svg"
FILL_BLOCKS = 1024
"""Blocks that are written in one call."""
MOST_TOKENS = 64 * 4096
LEAST_SECONDS = 0.4
"""A cell is measured at least so long, and at least ``repeats`` times."""


@dataclass(frozen=True)
class Sample:
    """Batches and contexts (tokens), least repeats of a cell, steps of the overhead."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    steps: int


FULL = Sample((1, 2, 4, 8, 16, 32, 64), (128, 256, 512, 1024, 2048, 4096), 5, 64)
QUICK = Sample((1, 16), (128, 512), 3, 8)

Cells = dict[tuple[int, int], float]
"""(batch, context) -> seconds."""


def run(results: Results, options: argparse.Namespace) -> None:
    sample = QUICK if options.quick else FULL
    if options.repeats:
        sample = Sample(sample.batches, sample.contexts, options.repeats, sample.steps)
    _steps(results, sample, options)
    _overhead(results, sample, options.dtype)


def _steps(results: Results, sample: Sample, options: argparse.Namespace) -> None:
    home = Settings.read().home
    folder = prepare_default_model(home)
    backend = _loaded(folder, options.dtype, min(MOST_TOKENS, sample.batches[-1] * sample.contexts[-1]), home)
    itemsize = getattr(torch, backend.dtype).itemsize
    weights, token_bytes = itemsize * weight_elements(folder), backend.bytes_per_block / backend.block_size
    fill(backend)
    bandwidth = read_bandwidth()
    cells: Cells = {}
    for (batch, context), seconds in decode_times(backend, sample):
        cells[batch, context] = seconds
        results.add(f"scaling.decode_ms[{batch},{context}]", 1e3 * seconds, unit="ms")
    products = {
        batch: product_seconds(backend._model, batch)  # type: ignore[attr-defined]
        for batch in progress(sample.batches, "linear layers")
    }
    floors = {cell: (weights + cell[0] * cell[1] * token_bytes) / bandwidth for cell in cells}
    results.add("scaling.read_bandwidth_gb_s", bandwidth / 1e9, unit="GB/s")
    results.add_value("scaling.bytes", {"weights": weights, "kv_token": token_bytes, "dtype": backend.dtype})
    for batch in sample.batches:
        results.add(f"scaling.floor.products_ms[{batch}]", 1e3 * products[batch], unit="ms")
    for (batch, context), seconds in cells.items():
        floor = max(floors[batch, context], products[batch])
        results.add(f"scaling.over_floor[{batch},{context}]", seconds / floor)
    results.add_value("scaling.floor.memory_ms", {f"{b},{c}": round(1e3 * s, 3) for (b, c), s in floors.items()})
    print(table(cells, products, floors), file=sys.stderr)
    drawn = picture(cells, products, floors, f"SmolLM2-135M, {backend.dtype}, {_machine(results)}")
    results.plots.append((drawn, "A step's time, and the floors that were measured beside it."))
    plot = options.plot or (None if options.quick else PLOT)
    if plot is not None:
        plot.write_text(drawn)


def _loaded(folder: Path, dtype: str, tokens: int, home: Path) -> Backend:
    """With a pool of ``tokens``, or half or a quarter of them where the memory does not suffice."""
    for share in (1, 2, 4):
        try:
            return load_model(str(folder), dtype=dtype, pool_tokens=tokens // share, home=home)[0]
        except ModelLoadError as error:
            refusal = error
    raise refusal


def fill(backend: Backend) -> None:
    """Write every block: memory that was never written is one page for all, and read from a cache."""
    dtype = getattr(torch, backend.dtype)
    values = torch.randn(backend.bytes_per_block // dtype.itemsize, generator=torch.Generator().manual_seed(1)).to(
        dtype
    )
    payload = values.view(torch.uint8).numpy().tobytes()
    for begin in range(0, backend.total_blocks, FILL_BLOCKS):
        ids = range(begin, min(begin + FILL_BLOCKS, backend.total_blocks))
        backend.write_blocks(list(ids), [payload] * len(ids))


def decode_times(backend: Backend, sample: Sample) -> Iterator[tuple[tuple[int, int], float]]:
    """Median seconds of a step, for every batch and context that the pool has room for."""
    pairs = [(batch, context) for batch in sample.batches for context in sample.contexts]
    room = backend.total_blocks * backend.block_size
    for batch, context in progress([pair for pair in pairs if pair[0] * pair[1] <= room], "decode steps"):
        chunks = decode_chunks(backend, batch, context)
        backend.run(chunks)
        taken: list[float] = []
        while len(taken) < sample.repeats or sum(taken) < LEAST_SECONDS:
            begin = time.perf_counter()
            backend.run(chunks)
            taken.append(time.perf_counter() - begin)
        yield (batch, context), statistics.median(taken)


def decode_chunks(backend: Backend, batch: int, context: int) -> list[Chunk]:
    """One new token each, the last of ``context``, behind blocks that no other sequence has."""
    blocks = -(-context // backend.block_size)
    rng = random.Random(context)
    return [
        Chunk(random_tokens(1, rng), context - 1, range(row * blocks, (row + 1) * blocks), Sampler())
        for row in range(batch)
    ]


def table(cells: Cells, products: dict[int, float], floors: Cells) -> str:
    """Milliseconds of a step, a row for each batch, a column for each context; behind it the memory floor."""
    contexts = sorted({context for _, context in cells})
    head = [f"{'ms':>5}", f"{'products':>9}", *(f"{context:>17}" for context in contexts)]
    rows = ["".join(head)]
    for batch in sorted(products):
        row = [f"{batch:>5}", f"{1e3 * products[batch]:>9.1f}"]
        for context in contexts:
            seconds, floor = cells.get((batch, context)), floors.get((batch, context))
            row.append(
                f"{'-':>17}" if seconds is None or floor is None else f"{1e3 * seconds:>9.1f} ({1e3 * floor:5.1f})"
            )
        rows.append("".join(row))
    return "\n".join(rows)


def picture(cells: Cells, products: dict[int, float], floors: Cells, machine: str) -> str:
    """The SVG: a line for each context, its memory floor dashed in the same colour, and the floor of the products."""
    series = []
    for colour, context in enumerate(sorted({context for _, context in cells})):
        batches = sorted(batch for batch, other in cells if other == context)
        measured = [(batch, 1e3 * cells[batch, context]) for batch in batches]
        floor = [(batch, 1e3 * floors[batch, context]) for batch in batches]
        series.append(Series(f"context {context}", measured, colour=colour))
        series.append(Series(f"memory floor {context}", floor, colour=colour, dashed=True))
    floor = [(batch, 1e3 * seconds) for batch, seconds in sorted(products.items())]
    series.append(Series("products floor", floor, colour=7, dashed=True))
    title = f"Time of a decode step ({machine})"
    return lines(title, "sequences in the step", "milliseconds", series, x_scale="log2", y_scale="log")


def _machine(results: Results) -> str:
    from bench.machine import machine

    about: dict[str, Any] = machine()
    return f"{about['cores']} cores, {about['cpu']}"


def _overhead(results: Results, sample: Sample, dtype: str) -> None:
    """Beside the default model at batch 16, and the KV-echo model at batch 256."""
    for name, sampling in (("greedy", step_overhead.GREEDY), ("sampled", step_overhead.SAMPLED)):
        steps = step_overhead.measure(16, sample.steps, sampling, dtype=dtype)
        results.add(f"scaling.overhead.{name}.ratio", steps.ratios, goal="<=0.1")
        _add_parts(results, f"scaling.overhead.{name}", steps)
    steps = step_overhead.measure(256, sample.steps, step_overhead.GREEDY, model=step_overhead.ECHO)
    results.add("scaling.overhead.echo.ms", [1e3 * each for each in steps.overhead], unit="ms", goal="<=4.0")
    pool = [1e3 * (s + c) for s, c in zip(steps.parts["schedule"], steps.parts["complete"], strict=True)]
    results.add("scaling.overhead.echo.schedule_and_pool_ms", pool, unit="ms", goal="<=1.0")
    _add_parts(results, "scaling.overhead.echo", steps)


def _add_parts(results: Results, name: str, steps: step_overhead.Steps) -> None:
    results.add(f"{name}.step_ms", [1e3 * each for each in steps.whole], unit="ms")
    results.add(f"{name}.model_ms", [1e3 * each for each in steps.model], unit="ms")
    for part, seconds in steps.parts.items():
        results.add(f"{name}.{part}_ms", [1e3 * each for each in seconds], unit="ms")
