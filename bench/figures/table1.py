"""Table 1: how many tokens of KV the paper's machines hold, by its arithmetic and by the engine's own memory plan."""

from __future__ import annotations

from collections.abc import Sequence

from bench.figures.figure import Figure, Number, Sample, within
from bench.report.plots import BarSeries, bars
from bench.simulation.hardware import GIB
from bench.simulation.settings import LARGE, MIDDLE, SMALL, Setting
from pagoda_inference.model.memory_plan import MemoryPlan, activation_bytes, plan_memory

OPT_VOCABULARY = 50_272
BLOCK = 16
ROWS = ((SMALL, 12, 26, 15_700), (MIDDLE, 21, 132, 9_700), (LARGE, 264, 346, 60_100))
"""Machine, and what the paper prints: memory for KV, parameters (GB), slots."""


def make(sample: Sample) -> Sequence[Figure]:
    figure = Figure(
        "table1",
        "Memory of the paper's machines, in tokens of KV",
        "Arithmetic alone, nothing is run. `slots`: the memory for KV that the paper prints, read as GiB, over the "
        "bytes of a token's keys and values in all layers. `planned`: what Pagoda's memory plan makes of the same "
        "devices: their data sheet's bytes with nothing else on them, the weights, the activations of a step, and nine "
        "tenths of the rest in blocks of 16 tokens.",
    )
    slots, planned = [], []
    for setting, kv_gib, weights_gb, paper in ROWS:
        name = setting.model.name.lower().replace("-", "_")
        held = kv_gib * GIB // setting.model.kv_bytes_per_token
        plan = plan_of(setting)
        slots.append(held)
        planned.append(plan.total_blocks * BLOCK)
        note = "the paper's 9.7K slots are 21.3 GiB: 21 GB is rounded, the simulation has 21.3" if kv_gib == 21 else ""
        figure.numbers += [
            Number(f"{name}.weights_gb", setting.model.weight_bytes / 1e9, "GB", weights_gb, within(weights_gb, 1)),
            Number(f"{name}.slots", held, "tokens", paper, within(paper, 2), note),
            Number(f"{name}.planned", planned[-1], "tokens", paper),
        ]
    figure.plots.append((
        bars(
            figure.title,
            "tokens of KV",
            [f"{setting.model.name}, {setting.devices}x {setting.device.name}" for setting, *_ in ROWS],
            [BarSeries("arithmetic", slots, paper=[row[3] for row in ROWS]), BarSeries("Pagoda's plan", planned)],
        ),
        "Outlines: the paper's values.",
    ))  # fmt: skip
    return [figure]


def plan_of(setting: Setting) -> MemoryPlan:
    """The plan of each of the machine's devices, among which the heads and the feed-forward layers are divided. OPT's
    feed-forward layers are four times as wide as its hidden size.
    """
    model, devices = setting.model, setting.devices
    return plan_memory(
        available=int(setting.device.memory_bytes),
        weights=int(model.weight_bytes / devices),
        activations=activation_bytes(model.hidden, 4 * model.hidden // devices, OPT_VOCABULARY, model.bytes_per_value),
        bytes_per_block=BLOCK * model.kv_bytes_per_token // devices,
        block_size=BLOCK,
        on_gpu=True,
    )
