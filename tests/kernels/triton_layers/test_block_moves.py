"""Whole blocks move within the pools, and to the host and back, bit for bit, in one launch; no other byte changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda_kernels import reference
from pagoda_kernels.triton_layers.block_copy import copy_blocks, copy_blocks_kernel, stage_blocks_kernel
from pagoda_kernels.triton_layers.block_transfer import gather_blocks, read_blocks, scatter_blocks, write_blocks
from pagoda_kernels.triton_layers.pool_table import pool_table
from tests.kernels.interpreted import interpreted
from tests.kernels.launches import launches_of
from tests.kernels.traffic import measured

BLOCKS = 7

SHAPES = {
    "aligned": [(2, 16, 8), (1, 8, 8), (2, 300, 16)],  # the last is more than a tile
    "odd": [(1, 3, 5), (2, 7, 1), (1, 9000, 1)],
}


def random_pools(shapes: list[tuple[int, int, int]], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """Pools of random bits, every other one shown transposed as a GPU's keys are."""
    torch.manual_seed(seed)
    pools = []
    for index, shape in enumerate(shapes):
        bits = torch.randint(0, 256, (BLOCKS, *shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8)
        pool = bits.view(dtype)
        pools.append(pool.transpose(2, 3) if index % 2 else pool)
    return pools


def bits_of(pool: torch.Tensor) -> torch.Tensor:
    """[blocks, bytes of a block], in the order of its memory."""
    dense = pool if pool.is_contiguous() else pool.transpose(2, 3)
    return dense.view(torch.uint8).flatten(1)


kinds = st.sampled_from(["aligned", "odd"])
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e4m3fn])
block_ids = st.integers(0, BLOCKS - 1)


@settings(max_examples=20)
@given(kind=kinds, dtype=dtypes, pairs=st.lists(st.tuples(block_ids, block_ids), max_size=6), on_device=st.booleans())
def test_pairs_are_copied_in_order(kind, dtype, pairs, on_device) -> None:
    """Chains and cycles among them: what one pair has written, the next one copies."""
    pools, expected = (random_pools(SHAPES[kind], dtype, 1) for _ in range(2))
    given_pairs = torch.tensor(pairs, dtype=torch.int64).view(-1, 2) if on_device else pairs
    interpreted(copy_blocks)(pools, given_pairs)
    reference.copy_blocks([bits_of(pool) for pool in expected], pairs)
    for ours, theirs in zip(pools, expected, strict=True):
        assert torch.equal(bits_of(ours), bits_of(theirs))


@settings(max_examples=15)
@given(kind=kinds, dtype=dtypes, data=st.data())
def test_blocks_go_to_payloads_and_come_back_elsewhere(kind, dtype, data) -> None:
    pools, before = (random_pools(SHAPES[kind], dtype, 2) for _ in range(2))
    chosen = data.draw(st.lists(block_ids, max_size=4))
    payloads = interpreted(gather_blocks)(pools, chosen)
    dense = [bits_of(pool) for pool in before]
    assert payloads == reference.gather_blocks(dense, chosen)
    places = data.draw(st.permutations(range(BLOCKS)))[: len(chosen)]
    interpreted(scatter_blocks)(pools, places, payloads)
    reference.scatter_blocks(dense, places, payloads)
    for ours, theirs in zip(pools, dense, strict=True):
        assert torch.equal(bits_of(ours), theirs)


def transferred(pools: list[torch.Tensor]) -> tuple[bool, bool, torch.Tensor]:
    """Both ways, with what a caller that does not wait does."""
    reading = read_blocks(pools, [1, 4])
    arrived = reading.arrived()
    reading.wait()
    writing = write_blocks(pools, [0, 2], [memoryview(row) for row in reading.payloads.numpy()])
    writing.precede_current_stream()
    writing.wait()
    return arrived, writing.arrived(), reading.payloads


def test_without_streams_a_transfer_has_arrived_when_it_begins() -> None:
    pools = random_pools(SHAPES["aligned"], torch.float16, 3)
    arrived, written, payloads = interpreted(transferred)(pools)
    assert arrived
    assert written
    for pool in map(bits_of, pools):
        assert torch.equal(pool[[0, 2]], pool[[1, 4]])
    assert payloads.shape == (2, pool_table(pools).payload)


@pytest.mark.parametrize("block", [-1, BLOCKS])
def test_a_block_outside_the_pools_is_refused(block: int) -> None:
    pools = random_pools(SHAPES["odd"], torch.float16, 4)
    with pytest.raises(IndexError):
        read_blocks(pools, [0, block])
    with pytest.raises(IndexError):
        write_blocks(pools, [block], [bytes(pool_table(pools).payload)])
    with pytest.raises(ValueError, match="payloads of"):
        write_blocks(pools, [1], [b"short"])


def test_a_pool_with_room_between_its_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes apart"):
        pool_table([torch.zeros(4, 2, 8, 8)[:, :1]])


def test_all_pools_are_one_launch() -> None:
    pools = random_pools(SHAPES["aligned"], torch.float16, 5)
    assert len(launches_of(copy_blocks, pools, [(0, 1), (2, 3)])) == 1
    assert len(launches_of(read_blocks, pools, [0, 1])) == 1


def far_block(block_bytes: int) -> list[bytes]:
    """Block 3 of a pool that is touched nowhere else is copied to block 0, and to a payload: 16 bytes of it alone."""
    memory = torch.empty(3 * block_bytes + 16, dtype=torch.uint8)
    memory[-16:] = torch.arange(16)
    table = torch.tensor([[memory.data_ptr()], [block_bytes], [0]])
    copy_blocks_kernel[(1, 1)](table[0], table[1], torch.tensor([[3, 0]]), 1, ALIGNED=True, TILE=2)
    payload = torch.zeros(16, dtype=torch.uint8)
    stage_blocks_kernel[(1, 1, 1)](*table, torch.tensor([3]), payload, 16, TO_POOLS=False, ALIGNED=True, TILE=2)
    return [memory[:16].numpy().tobytes(), payload.numpy().tobytes()]


def test_a_pool_may_have_more_bytes_than_an_int32_counts() -> None:
    assert interpreted(far_block)(2**30 + 64) == [bytes(range(16))] * 2


def test_a_copy_moves_each_byte_once_in_and_once_out() -> None:
    pools = random_pools([(8, 16, 128), (8, 128, 16)], torch.bfloat16, 6)
    traffic = measured(copy_blocks, pools, [(0, 3), (5, 6)])
    for index, pool in enumerate(pools):
        moved = traffic[f"pools[{index}]"]
        assert moved.loaded.moved == moved.stored.moved == 2 * pool[0].nbytes
    assert traffic["other"].loaded.distinct <= 64  # two pairs, and the table of two pools
    traffic = measured(read_blocks, pools, [1, 2, 6])
    for index, pool in enumerate(pools):
        assert traffic[f"pools[{index}]"].loaded.moved == 3 * pool[0].nbytes
    assert traffic["result.payloads"].stored.moved == 3 * sum(pool[0].nbytes for pool in pools)
