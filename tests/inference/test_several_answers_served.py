"""Several answers to one prompt by a whole engine: exactly those that would be given alone, whatever a rival does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pagoda_inference.decoding.beam_search import BeamSearch
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.echo import END, EchoBackend
from pagoda_inference.protocol import Delta
from tests.inference.running_engine import Answer, Tenant

PROMPT = "The pagoda has five storeys, and somebody lives on each."


def of_index(answer: Answer, index: int) -> list[Delta]:
    return [event for event in answer.events if isinstance(event, Delta) and event.index == index]


def tokens(deltas: list[Delta]) -> tuple[int, ...]:
    return tuple(token for delta in deltas for token in delta.token_ids)


@pytest.mark.parametrize("pool_tokens", [4096, 512], ids=["roomy", "tight"])
async def test_each_sample_is_the_answer_that_its_stream_gives_alone(start_engine, pool_tokens):
    engine = await start_engine(pool_tokens=pool_tokens)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    options: dict[str, Any] = {"temperature": 1.0, "max_tokens": 40}
    seeds = [Sampler(1.0, seed=7).stream(index).seed for index in range(4)]
    alone = [await acme.answer(PROMPT, seed=seed, **options) for seed in seeds]
    together, *_ = await asyncio.gather(
        acme.answer(PROMPT, seed=7, n=4, **options), *(rival.answer(f"noise {n} " * 8, **options) for n in range(6))
    )
    assert [tokens(of_index(together, index)) for index in range(4)] == [answer.token_ids for answer in alone]
    assert ["".join(d.text for d in of_index(together, index)) for index in range(4)] == [a.text for a in alone]
    assert [of_index(together, index)[-1].finish_reason for index in range(4)] == [a.finished.reason for a in alone]
    assert together.finished.usage.output_tokens == sum(len(answer.token_ids) for answer in alone)
    assert together.seqs == list(range(1, len(together.events) + 1))


@pytest.mark.parametrize("early_stopping", [True, False, "never"], ids=str)
async def test_beams_are_those_computed_from_the_first_token(start_engine, early_stopping):
    engine = await start_engine(pool_tokens=1024)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    options: dict[str, Any] = {"beam_width": 4, "n": 3, "early_stopping": early_stopping, "max_tokens": 50}
    found, *_ = await asyncio.gather(
        acme.answer(PROMPT, **options), *(rival.answer(f"noise {n} " * 8, max_tokens=40) for n in range(4))
    )
    deltas = [event for event in found.events if isinstance(event, Delta)]
    expected = search_from_the_first_token(
        list(PROMPT.encode()), BeamSearch(4, 3, 1.0, early_stopping, [END], max_tokens=50)
    )
    assert [(d.index, d.token_ids, d.score, d.finish_reason) for d in deltas] == [
        (index, hypothesis.token_ids, hypothesis.score, hypothesis.reason) for index, hypothesis in enumerate(expected)
    ]
    assert found.finished.usage.output_tokens == sum(len(hypothesis.token_ids) for hypothesis in expected)


def search_from_the_first_token(prompt: list[int], search: BeamSearch) -> list[Any]:
    """On the echo model, every beam anew at every step."""
    beams = [prompt]
    while beams:
        backend = EchoBackend()
        wanted = search.candidates_per_beam
        found: list[Any] = [backend.run([Chunk(beam, 0, range(64), candidates=wanted)])[0] for beam in beams]
        beams = [[*beams[parent], token] for parent, token in search.advance(found)]
    return search.hypotheses()
