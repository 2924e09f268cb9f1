"""How attention is cut up: rows and tokens of a program's tiles, and parts of a context. Chosen by shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

STAGE_BYTES = 32 * 1024
"""KV that a decode loads while it computes with what came before: programs side by side on one processor, each with
some on its way, are what keeps the memory busy."""

PARTS = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Tokens that a part of a split context may have. No program reads more than the last: what a single long context
among short ones takes is bounded, and its parts' results (one row of float32 each) are a thousandth of their KV."""

RESIDENT = 3
"""Decode programs that a processor runs at once, which the kernel's budget allows."""

PROGRAM_COST, REDUCTION_COST = 64, 128
"""What beginning a program, and a second pass, take: in tokens that one program reads meanwhile, each in 42 ns (at
4.8 TB/s on 132 processors with three programs each, head size 128, two bytes a number)."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """rows: (token, query head) pairs of a program. tokens: of KV that it takes at a time. warps, stages: Triton's."""

    rows: int
    tokens: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What a program of a kernel may take on any GPU and for any shape: registers of a thread, bytes of shared memory
    of a program. Nothing is ever spilled."""

    registers: int
    shared_bytes: int


def width(size: int) -> int:
    """A head size as tiles have it: a power of two, at least 16."""
    return max(16, power_of_two(size))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below ``number``."""
    return 1 << (number - 1).bit_length()


@lru_cache(maxsize=256)
def decode_tiling(rows: int, widths: int, pool_bytes: int, query_bytes: int, architecture: int) -> Tiling:
    """For ``rows`` rows a sequence and KV head; widths: of a head's key and value together; bytes: of a number;
    architecture: 80 for sm_80.

    As much as tests/kernels/triton_attention/test_resources.py finds within the budget: converting float8 takes
    registers, and so do wide heads, which more warps share.
    """
    tokens = max(16, min(128, power_of_two(STAGE_BYTES // (widths * query_bytes) + 1) // 2))
    if query_bytes == 4:  # float32 is multiplied without tensor cores, which takes registers
        tokens = 16
    stages = 3 if architecture >= 90 else 2
    if pool_bytes == 1 and query_bytes == 4:
        stages = 1
    elif pool_bytes == 1 and widths <= 256:
        tokens, stages = (tokens // 2 if architecture < 90 else tokens), (3 if architecture == 90 else 2)
    rows = min(64, max(16, power_of_two(rows)))
    return Tiling(rows, tokens, 8 if rows == 64 or widths > 256 else 4, stages)


@lru_cache(maxsize=256)
def prefill_tiling(rows: int, widths: int, pool_bytes: int, query_bytes: int, architecture: int) -> Tiling:
    """For at most ``rows`` rows a sequence and KV head; the rest as in ``decode_tiling``.

    The largest tiles that tests/kernels/triton_attention/test_resources.py finds to spill nothing.
    """
    if query_bytes == 4:
        most, tokens, warps = 32, 16, 8
    elif architecture < 90 and pool_bytes == 1:
        most, tokens, warps = 64, 16 if widths > 256 else 32, 8
    elif widths > 256:
        most, tokens, warps = 64, 32, 8
    elif architecture < 90:
        most, tokens, warps = 128, 32, 8
    elif architecture >= 100 and widths <= 128:
        most, tokens, warps = 64, 64, 4
    else:
        most, tokens, warps = 128, 64, 8
    stages = 1 if query_bytes == 4 and pool_bytes == 1 else 2
    return Tiling(min(most, max(16, power_of_two(rows))), tokens, warps, stages)


@lru_cache(maxsize=1024)
def tokens_of_a_part(programs: int, longest: int, processors: int) -> int:
    """How many tokens each part of a context gets, where ``programs`` programs would read whole ones, the longest of
    ``longest`` tokens: at least ``longest`` where splitting gains nothing.

    A processor reads at its full rate while it has RESIDENT programs, each at a share of it otherwise.
    """

    def time(part: int) -> int:
        parts = -(-longest // part)
        of_a_processor = max(RESIDENT, -(-programs * parts // processors))
        return of_a_processor * (min(part, longest) + PROGRAM_COST) + (RESIDENT * REDUCTION_COST if parts > 1 else 0)

    return min(reversed(PARTS), key=time)
