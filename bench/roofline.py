"""Floors of a decode step, measured on the machine at hand: memory that has to be read, products that have to be made.

Neither floor can be passed by an engine that reads every weight and every KV entry once a step; together they say what
of a step's time is left to gain.
"""

from __future__ import annotations

import json
import math
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

STREAM_BYTES = 1 << 30
"""Far more than a processor's caches hold."""
RUNS = 5


def weight_elements(folder: Path) -> int:
    """Numbers in the safetensors files of a model's folder, from their headers."""
    count = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(size))
        count += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return count


def read_bandwidth(size: int = STREAM_BYTES) -> float:
    """Bytes per second of reading main memory with all of torch's threads: the best of several ways and runs."""
    stream = torch.ones(size // 4, dtype=torch.float32)
    ways: list[Callable[[], torch.Tensor]] = [stream.sum, stream.max, lambda: torch.dot(stream, stream)]
    return size / min(min(_seconds(way) for _ in range(RUNS)) for way in ways)


@torch.inference_mode()
def product_seconds(model: Any, rows: int) -> float:
    """Seconds of all linear layers of ``model`` one after the other, each over ``rows`` inputs: the median of runs.

    They are the engine's own layers with their weights, so that no weight is in a cache that would not be in a step.
    """
    layers = [layer for layer in model.modules() if hasattr(layer, "in_features") and hasattr(layer, "out_features")]
    if not layers:
        raise ValueError("the model has no linear layers")
    inputs = {layer.in_features: torch.randn(1, rows, layer.in_features, dtype=model.dtype) for layer in layers}

    def products() -> None:
        for layer in layers:
            layer(inputs[layer.in_features])

    products()
    return statistics.median(_seconds(products) for _ in range(RUNS))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
