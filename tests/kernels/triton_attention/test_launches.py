"""How a step is launched: chosen from what the host knows, without asking the device."""

from __future__ import annotations

import pytest
import torch

from pagoda_kernels import PagedBatch
from pagoda_kernels.triton_attention.tiling import (
    PARTS,
    RESIDENT,
    decode_tiling,
    prefill_tiling,
    tokens_of_a_part,
)
from tests.kernels.triton_attention.launches import recorded


def names(launches: list) -> list[str]:
    return [launch.name for launch in launches]


def test_a_full_batch_of_decodes_is_one_launch_without_a_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    (decode,) = recorded(monkeypatch, sequences=64, tokens=64, longest_context=4096)
    assert (decode.name, decode.grid) == ("decode_kernel", (8, 1, 64))
    assert decode.arguments["partial"] is None


def test_one_long_context_is_split_over_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    decode, reduction = recorded(monkeypatch, sequences=1, tokens=1, longest_context=100_000, processors=132)
    kv_heads, splits, sequences = decode.grid
    assert (kv_heads, sequences) == (8, 1)
    assert 132 <= 8 * splits <= 132 * RESIDENT, "every processor reads, in one round"
    assert decode.arguments["partial"].shape == (1, 8, splits, 4, 128)
    assert reduction.arguments["splits"] == splits
    assert splits * decode.arguments["split_tokens"] >= 100_000


def test_a_window_leaves_nothing_to_split(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = recorded(monkeypatch, sequences=1, tokens=1, longest_context=100_000, sliding_window=128)
    assert names(launches) == ["decode_kernel"]


def test_chunks_and_decodes_are_two_launches_that_leave_out_each_others_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decode, prefill = recorded(monkeypatch, sequences=128, tokens=639, longest_query=512, longest_context=1024)
    assert names([decode, prefill]) == ["decode_kernel", "prefill_kernel"]
    assert decode.arguments["limit"] == prefill.arguments["above"] == 4  # 4 tokens of 4 heads fill the 16 rows
    assert prefill.grid == (639 * 4 // 128 + 128, 8)


def test_a_step_of_drafts_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    (decode,) = recorded(monkeypatch, sequences=64, tokens=200, longest_query=8)
    assert (decode.arguments["limit"], decode.arguments["ROWS"]) == (8, 32)


def test_many_query_heads_are_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    (decode,) = recorded(monkeypatch, query_heads=71, kv_heads=1, longest_context=128)
    assert (decode.arguments["ROWS"], decode.grid[0]) == (64, 2)


@pytest.mark.parametrize(("architecture", "stored_as"), [(80, torch.uint8), (89, torch.float8_e4m3fn)])
def test_float8_is_given_as_bytes_where_the_gpu_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch, architecture: int, stored_as: torch.dtype
) -> None:
    (decode,) = recorded(monkeypatch, pool_dtype=torch.float8_e4m3fn, architecture=architecture)
    assert decode.arguments["key_pool"].dtype == decode.arguments["value_pool"].dtype == stored_as


@pytest.mark.parametrize("processors", [1, 84, 132])
@pytest.mark.parametrize("programs", [1, 8, 100, 512, 4096])
def test_parts_are_never_too_long_and_never_lose_a_token(programs: int, processors: int) -> None:
    for longest in (1, 255, 256, 1000, 4096, 4097, 131_072):
        part = tokens_of_a_part(programs, longest, processors)
        assert part in PARTS
        assert part * -(-longest // part) >= longest


def test_few_programs_are_split_and_many_are_not() -> None:
    assert tokens_of_a_part(8, 2048, 132) == 256
    assert tokens_of_a_part(132 * RESIDENT, 2048, 132) >= 2048


def test_tiles_are_powers_of_two_that_the_parts_are_made_of() -> None:
    for widths in (32, 64 + 128, 256, 512):
        for pool_bytes, query_bytes in ((1, 2), (2, 2), (1, 4), (4, 4)):
            for rows in (1, 7, 16, 71, 4096):
                for architecture in (80, 90):
                    for tiling in (
                        decode_tiling(rows, widths, pool_bytes, query_bytes, architecture),
                        prefill_tiling(rows, widths, pool_bytes, query_bytes, architecture),
                    ):
                        assert tiling.rows & (tiling.rows - 1) == tiling.tokens & (tiling.tokens - 1) == 0
                        assert tiling.rows >= 16
                        assert tiling.tokens >= 16
                        assert all(part % tiling.tokens == 0 for part in PARTS)


def test_the_longest_are_read_from_the_device_only_if_the_host_has_not_said() -> None:
    starts, contexts = torch.tensor([0, 1, 6], dtype=torch.int32), torch.tensor([40, 9], dtype=torch.int32)
    tables, slots = torch.zeros(2, 3, dtype=torch.int32), torch.zeros(6, dtype=torch.int64)
    assert PagedBatch(starts, contexts, tables, slots).longest() == (5, 40)
    assert PagedBatch(starts, contexts, tables, slots, 8, 64).longest() == (8, 64)
    meta = [each.to("meta") for each in (starts, contexts, tables, slots)]
    assert PagedBatch(*meta, 5, 40).longest() == (5, 40)
    with pytest.raises(RuntimeError, match="meta"):
        PagedBatch(*meta).longest()
