"""What is asked of an engine under test, drawn by hypothesis: few texts and letters, so that prompts share prefixes."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from pagoda_inference.protocol import Sampling
from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from tests.kv.engine_shape import Shape
from tests.kv.engine_world import TENANTS

LETTERS = b"abcd"
TEXTS = [[random.Random(seed).choice(LETTERS) for _ in range(80)] for seed in range(3)]
"""What prompts begin with: few, so that they share prefixes."""
LONGEST = 120
LINEAGES = ["", "talk", "branch", "other"]

tenants = st.sampled_from(TENANTS)
lineages = st.sampled_from(LINEAGES)
tails = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=6)
classes = st.sampled_from(["interactive", "interactive", "api", "batch"])
prompts = st.builds(
    lambda text, length, tail: [*text[:length], *tail],
    st.sampled_from(TEXTS),
    st.integers(1, 50),
    st.lists(st.sampled_from(LETTERS), max_size=6),
)
lengths = st.sampled_from([1, 3, 8, 20, 30, 40])
greedy = st.builds(Sampling, max_tokens=lengths, ignore_eos=st.booleans())
seeded = st.builds(Sampling, max_tokens=lengths, temperature=st.just(1.0), seed=st.integers(0, 3))
several = st.builds(
    Sampling, max_tokens=lengths, temperature=st.sampled_from([0.0, 1.0]), seed=st.integers(0, 3), n=st.integers(2, 3)
)
beams = st.integers(2, 3).flatmap(
    lambda width: st.builds(
        Sampling,
        max_tokens=st.sampled_from([1, 3, 8, 20]),
        beam_width=st.just(width),
        n=st.integers(1, width),
        length_penalty=st.sampled_from([0.0, 1.0, 2.0]),
        early_stopping=st.sampled_from([True, False, "never"]),
    )
)
samplings = st.one_of(greedy, greedy, seeded, several, beams)
shapes = st.builds(
    Shape,
    blocks=st.sampled_from([*range(1, 9), *range(8, 21), *range(8, 21)]),
    block_size=st.sampled_from([1, 2, 4, 16]),
    budget=st.integers(4, 24),
    slots=st.integers(1, 4),
    collide=st.sampled_from([False, False, True]),
    mode=st.sampled_from(["swap", "swap", "recompute", "auto"]),
    host=st.integers(0, 10) | st.integers(3, 10),
    disk=st.sampled_from([0, 0, 0, 12]),
    waiting=st.sampled_from([1024, 1024, 3]),
    limits=st.sampled_from([UNLIMITED, UNLIMITED, StepLimits(1.0, 0.1, 0.4, 0.1)]),
    drafter=st.sampled_from(["", "oracle", "model"]),
    drafts=st.integers(1, 6),
)
