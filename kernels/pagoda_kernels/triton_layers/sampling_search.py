"""Sampling, pass by pass: what each one finds in a row of logits.

Numbers are compared as integer keys that are ordered as they are. A token's weight is 2**((logit - greatest) * scale),
scale = log2(e) / temperature: its probability over that of the most probable one. Sums have a fixed order, so that the
same row gives the same token in any batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

CUTS: tl.constexpr = tl.constexpr(8)
CUT_BITS: tl.constexpr = tl.constexpr(3.0)
"""Candidates are first sought among weights of at least 2**-3, 2**-6, ... 2**-24."""

WAY_BITS: tl.constexpr = tl.constexpr(4)
WAYS: tl.constexpr = tl.constexpr(16)
"""Keys that a step of a search tries."""


@triton.jit
def key_of(logits):
    """float32 as int32 of the same order; 0 and -0 are the same."""
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def logit_of(key):
    """The inverse of ``key_of``."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def find_greatest(row, size, scale, TILE: tl.constexpr):
    """One pass: (greatest logit, its lowest token, sum of all weights, whether all this is made of numbers)."""
    lanes = tl.arange(0, TILE)
    greatest = tl.full([TILE], float("-inf"), tl.float32)
    token = tl.full([TILE], 0, tl.int32)
    weight = tl.zeros([TILE], tl.float32)
    broken = tl.zeros([TILE], tl.int32)
    for begin in range(0, size, TILE):
        tokens = begin + lanes
        logits = tl.load(row + tokens, mask=tokens < size, other=float("-inf")).to(tl.float32)
        broken |= (logits != logits).to(tl.int32)
        token = tl.where(logits > greatest, tokens, token)
        greater = tl.maximum(greatest, logits)
        base = tl.where(greater == float("-inf"), 0.0, greater)
        weight = weight * tl.exp2((greatest - base) * scale) + tl.exp2((logits - base) * scale)
        greatest = greater
    top = tl.max(greatest, axis=0)
    first = tl.min(tl.where(greatest == top, token, size), axis=0)
    base = tl.where(top == float("-inf"), 0.0, top)
    mass = tl.sum(weight * tl.exp2((greatest - base) * scale), axis=0)
    usable = (tl.max(broken, axis=0) == 0) & (top > float("-inf")) & (top < float("inf"))
    return top, first, mass, usable


@triton.jit
def find_cut(row, size, top, scale, goal, by_count, TILE: tl.constexpr):
    """One pass: the greatest of the cuts (log2 of a weight) above which there are ``goal`` tokens, or a mass of
    ``goal`` where not ``by_count``; -inf where there is none."""
    lanes = tl.arange(0, TILE)
    cuts = -CUT_BITS * (tl.arange(0, CUTS) + 1).to(tl.float32)
    above = tl.zeros([CUTS, TILE], tl.float32)
    for begin in range(0, size, TILE):
        tokens = begin + lanes
        logits = tl.load(row + tokens, mask=tokens < size, other=float("-inf")).to(tl.float32)
        score = (logits - top) * scale
        counted = tl.where(by_count, 1.0, tl.exp2(score))
        above += tl.where(score[None, :] >= cuts[:, None], counted[None, :], 0.0)
    return tl.max(tl.where(tl.sum(above, axis=1) >= goal, cuts, float("-inf")), axis=0)


@triton.jit
def collect(row, size, top, scale, cut, least_weight, candidates, CAPACITY: tl.constexpr, TILE: tl.constexpr):
    """One pass: the tokens above ``cut`` of at least ``least_weight``, in order; returns how many there are.

    candidates: int32 [CAPACITY]; what does not fit is only counted.
    """
    lanes = tl.arange(0, TILE)
    count = 0
    for begin in range(0, size, TILE):
        tokens = begin + lanes
        inside = tokens < size
        logits = tl.load(row + tokens, mask=inside, other=float("-inf")).to(tl.float32)
        score = (logits - top) * scale
        taken = inside & (score >= cut) & (tl.exp2(score) >= least_weight)
        places = count + tl.cumsum(taken.to(tl.int32), axis=0) - 1
        tl.store(candidates + places, tokens, mask=taken & (places < CAPACITY))
        count += tl.sum(taken.to(tl.int32), axis=0)
    tl.debug_barrier()  # the program's other threads read them
    return count


@triton.jit
def _candidates(row, candidates, held, begin, count, size, TILE: tl.constexpr):
    """(tokens, logits, which are any) of the ``count`` candidates from ``begin`` on.

    held: as many where they were collected, 0 where the whole row is candidates.
    """
    lanes = begin + tl.arange(0, TILE)
    inside = lanes < count
    tokens = tl.where(held > 0, tl.load(candidates + lanes, mask=lanes < held, other=0), lanes)
    logits = tl.load(row + tokens, mask=inside, other=float("-inf")).to(tl.float32)
    return tokens, logits, inside


@triton.jit
def least_key(row, candidates, held, count, size, TILE: tl.constexpr):
    """The smallest of the candidates' keys."""
    least = 0x7FFFFFFF
    for begin in range(0, count, TILE):
        _, logits, inside = _candidates(row, candidates, held, begin, count, size, TILE)
        least = tl.minimum(least, tl.min(tl.where(inside, key_of(logits), 0x7FFFFFFF), axis=0))
    return least


@triton.jit
def above(row, candidates, held, count, size, top, scale, key, TILE: tl.constexpr):
    """(how many candidates have greater keys than ``key``, their mass)."""
    number = tl.zeros([TILE], tl.int32)
    mass = tl.zeros([TILE], tl.float32)
    for begin in range(0, count, TILE):
        _, logits, inside = _candidates(row, candidates, held, begin, count, size, TILE)
        greater = inside & (key_of(logits) > key)
        number += greater.to(tl.int32)
        mass += tl.where(greater, tl.exp2((logits - top) * scale), 0.0)
    return tl.sum(number, axis=0), tl.sum(mass, axis=0)


@triton.jit
def search(row, candidates, held, count, size, top, scale, low, goal, by_count, TILE: tl.constexpr):
    """The smallest key from ``low`` to that of ``top`` above which there are less than ``goal`` candidates, or less
    mass where not ``by_count``.

    Each step tries WAYS keys between the bounds at once: at most nine steps.
    """
    least = low.to(tl.int64)  # the distance of two keys may pass 2**31
    most = key_of(top).to(tl.int64)
    parts = tl.arange(0, WAYS).to(tl.int64)
    while least < most:
        tried = least + (((most - least) * parts) >> WAY_BITS)
        keys = tried.to(tl.int32)
        found = tl.zeros([WAYS, TILE], tl.float32)
        for begin in range(0, count, TILE):
            _, logits, inside = _candidates(row, candidates, held, begin, count, size, TILE)
            counted = tl.where(inside, tl.where(by_count, 1.0, tl.exp2((logits - top) * scale)), 0.0)
            found += tl.where(key_of(logits)[None, :] > keys[:, None], counted[None, :], 0.0)
        enough = tl.sum(found, axis=1) >= goal
        least, most = tl.max(tl.where(enough, tried + 1, least), axis=0), tl.min(tl.where(enough, most, tried), axis=0)
    return most.to(tl.int32)


@triton.jit
def _kept(logits, inside, top, scale, key, equals, least_weight, seen):
    """(weights of what is kept, how many equal to ``key`` were seen): all greater ones, and the first ``equals``."""
    keys = key_of(logits)
    weights = tl.exp2((logits - top) * scale)
    equal = inside & (keys == key)
    order = seen + tl.cumsum(equal.to(tl.int32), axis=0)
    kept = inside & ((keys > key) | (equal & (order <= equals))) & (weights >= least_weight)
    return tl.where(kept, weights, 0.0), seen + tl.sum(equal.to(tl.int32), axis=0)


@triton.jit
def draw_kept(row, candidates, held, count, size, top, scale, key, equals, least_weight, uniform, TILE: tl.constexpr):
    """Two passes over the candidates: the mass of what is kept, and the token where ``uniform`` of it is exceeded."""
    mass = 0.0
    seen = 0
    for begin in range(0, count, TILE):
        _, logits, inside = _candidates(row, candidates, held, begin, count, size, TILE)
        weights, seen = _kept(logits, inside, top, scale, key, equals, least_weight, seen)
        mass += tl.sum(weights, axis=0)
    goal = (uniform * mass).to(tl.float32)
    before = 0.0
    seen = 0
    chosen = size
    last = 0
    begin = 0
    while (begin < count) & (chosen == size):
        tokens, logits, inside = _candidates(row, candidates, held, begin, count, size, TILE)
        weights, seen = _kept(logits, inside, top, scale, key, equals, least_weight, seen)
        chosen, last, before = _pass_goal(tokens, weights, goal, before, last, size)
        begin += TILE
    return tl.where(chosen < size, chosen, last)


@triton.jit
def draw_all(row, size, top, scale, mass, uniform, TILE: tl.constexpr):
    """At most one pass: the token where ``uniform`` of the whole ``mass`` is exceeded."""
    lanes = tl.arange(0, TILE)
    goal = (uniform * mass).to(tl.float32)
    before = 0.0
    chosen = size
    last = 0
    begin = 0
    while (begin < size) & (chosen == size):
        tokens = begin + lanes
        logits = tl.load(row + tokens, mask=tokens < size, other=float("-inf")).to(tl.float32)
        weights = tl.exp2((logits - top) * scale)
        chosen, last, before = _pass_goal(tokens, weights, goal, before, last, size)
        begin += TILE
    return tl.where(chosen < size, chosen, last)


@triton.jit
def _pass_goal(tokens, weights, goal, before, last, size):
    """(the first token at which the cumulated weight exceeds ``goal``, or ``size``; the last one with a weight, for
    where rounding leaves the goal unreached; the weight up to here)."""
    reached = before + tl.cumsum(weights, axis=0)
    chosen = tl.min(tl.where((weights > 0.0) & (reached > goal), tokens, size), axis=0)
    last = tl.maximum(last, tl.max(tl.where(weights > 0.0, tokens, 0), axis=0))
    return chosen, last, before + tl.sum(weights, axis=0)
