"""Decode steps have blocks of their own, floors are of what the model has, and a turn's parts make it up."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bench import scaling, step_overhead
from bench.roofline import product_seconds, weight_elements
from pagoda_inference.model.echo import EchoBackend


def test_sequences_of_a_decode_step_share_no_block() -> None:
    chunks = scaling.decode_chunks(EchoBackend(block_size=16, pool_tokens=1024), 8, 100)
    blocks = [block for chunk in chunks for block in chunk.block_table]
    assert len(blocks) == len(set(blocks)) == 8 * 7
    assert {(chunk.start, len(chunk.token_ids)) for chunk in chunks} == {(99, 1)}


def test_cells_that_the_pool_has_no_room_for_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "LEAST_SECONDS", 0.0)
    backend = EchoBackend(block_size=16, pool_tokens=512)
    ran: list[int] = []
    monkeypatch.setattr(backend, "run", lambda chunks: ran.append(len(chunks)))
    cells = dict(scaling.decode_times(backend, scaling.Sample((1, 4, 8), (64, 128), 2, 1)))
    assert set(cells) == {(1, 64), (1, 128), (4, 64), (4, 128), (8, 64)}
    assert ran == [1] * 6 + [4] * 6 + [8] * 3  # one to warm up, two measured


def test_weights_are_counted_from_the_files(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7)}, tmp_path / "one.safetensors")
    save_file({"c": torch.zeros(2, 2, dtype=torch.bfloat16)}, tmp_path / "two.safetensors", metadata={"format": "pt"})
    assert weight_elements(tmp_path) == 3 * 5 + 7 + 4


class Model(nn.Module):
    """Two linear layers that count their rows."""

    dtype = torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.rows: list[int] = []
        for layer in (self.first, self.second):
            layer.register_forward_hook(lambda module, inputs, output: self.rows.append(inputs[0].shape[1]))


def test_the_floor_of_products_runs_every_linear_layer_over_all_rows() -> None:
    model = Model()
    assert product_seconds(model, 3) > 0
    assert set(model.rows) == {3}
    assert len(model.rows) % 2 == 0
    with pytest.raises(ValueError, match="no linear layers"):
        product_seconds(nn.ReLU(), 3)


CELLS = {(1, 128): 0.02, (4, 128): 0.03, (1, 512): 0.025}
FLOORS = {(1, 128): 0.01, (4, 128): 0.011, (1, 512): 0.012}
PRODUCTS = {1: 0.012, 4: 0.015}


def test_the_table_has_a_row_for_each_batch_and_leaves_gaps() -> None:
    head, one, four = scaling.table(CELLS, PRODUCTS, FLOORS).splitlines()
    assert head.split() == ["ms", "products", "128", "512"]
    assert one.split() == ["1", "12.0", "20.0", "(", "10.0)", "25.0", "(", "12.0)"]
    assert four.split() == ["4", "15.0", "30.0", "(", "11.0)", "-"]


def test_the_picture_is_svg_with_a_line_and_a_floor_for_each_context() -> None:
    root = ElementTree.fromstring(scaling.picture(CELLS, PRODUCTS, FLOORS, "1 core, <a processor>"))
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 2 + 1  # with several batches: context 128 and its floor, the products' floor
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "Time of a decode step (1 core, <a processor>)" in texts
    assert {"context 128", "memory floor 512", "products floor"} <= set(texts)


def test_the_parts_of_a_turn_are_within_it_and_the_engine_is_as_before() -> None:
    steps = step_overhead.measure(40, 3, step_overhead.GREEDY, model=step_overhead.ECHO)
    assert len(steps.whole) == len(steps.model) == 3
    assert set(steps.parts) == {"schedule", "complete", "emit", "deliver"}
    for number, overhead in enumerate(steps.overhead):
        parts = sum(seconds[number] for seconds in steps.parts.values())
        assert 0 < parts < overhead < steps.whole[number]
    assert all(0 < ratio < 1 for ratio in steps.ratios)


def test_a_clock_counts_calls_by_part_until_they_are_taken() -> None:
    class Owner:
        def work(self) -> int:
            return 5

    clock, owner = step_overhead.Clock(), Owner()
    with clock.wrapped(owner, "work", "part"):
        assert owner.work() == 5
        assert set(clock.take()) == {"part"}
        assert clock.take() == {}
    owner.work()
    assert clock.take() == {}
