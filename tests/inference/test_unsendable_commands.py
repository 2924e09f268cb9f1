"""What no message can carry is refused where it was asked, and concerns nobody else on the connection."""

from __future__ import annotations

import pytest

from pagoda_inference.client import EngineRefused
from pagoda_inference.protocol import MAX_MESSAGE_BYTES, ChatMessage
from tests.inference.running_engine import read


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"seed": 2**64}, "seed must be a whole number of at most 64 bits, not 18446744073709551616"),
        ({"seed": -(2**63) - 1}, "seed must be"),
        ({"top_k": 2**70}, "cannot be sent"),
        ({"messages": (ChatMessage("user", "half a character: \ud800"),)}, "cannot be sent"),
        ({"messages": (ChatMessage("user", "x" * (MAX_MESSAGE_BYTES + 1)),)}, "shorten the prompt"),
    ],
)
async def test_it_is_refused_alone(acme, rival, fields, why):
    running = rival.start(max_tokens=20, ignore_eos=True)
    subscription = acme.start(**fields)
    with pytest.raises(EngineRefused, match=why):
        await read(subscription)
    assert (await read(acme.start("what follows", max_tokens=3))).finished.reason in ("stop", "length")
    for seed in (2**64 - 1, -(2**63)):
        assert (await acme.answer(seed=seed, temperature=1.0, max_tokens=2)).finished.usage.output_tokens == 2
    assert (await read(running)).finished.usage.output_tokens == 20
