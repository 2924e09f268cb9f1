"""Grammars and log probabilities over the socket, with the KV-echo model: refused, followed, told; and nobody waits."""

from __future__ import annotations

import asyncio
import json

import pytest

from pagoda_inference.client import EngineRefused
from pagoda_inference.protocol import ChatMessage, Delta, Grammar
from tests.inference.running_engine import Answer, Tenant


def logprobs(answer: Answer) -> list[int]:
    """The tokens that log probabilities were told of."""
    return [told.token_id for event in answer.events if isinstance(event, Delta) for told in event.logprobs]


async def test_documents_follow_their_schema_and_a_rivals_text_stays_what_it_is(acme: Tenant, rival: Tenant) -> None:
    before = await rival.answer(max_tokens=40)
    schema = {"type": "object", "properties": {"size": {"enum": [1, 2, 3]}}, "required": ["size"]}
    grammar = Grammar("json_schema", json.dumps(schema | {"additionalProperties": False}))
    answers, after = await asyncio.gather(
        asyncio.gather(*(acme.answer(f"number {number}", grammar=grammar) for number in range(6))),
        rival.answer(max_tokens=40),
    )
    for answer in answers:
        assert answer.finished.reason == "stop"
        assert json.loads(answer.text)["size"] in (1, 2, 3)
    assert after.text == before.text


async def test_an_objects_text_is_an_object(acme: Tenant) -> None:
    answer = await acme.answer(grammar=Grammar("json_object"), temperature=1.0, seed=3, max_tokens=2000)
    assert answer.finished.reason == "stop"
    assert isinstance(json.loads(answer.text), dict)


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("json_schema", '{"type": "integer", "multipleOf": 99999999}'),
        Grammar("json_schema", '{"type": "nosuch"}'),
        Grammar("regex", "(a"),
    ],
    ids=["hostile", "schema", "regex"],
)
async def test_a_refused_grammar_says_why_and_others_go_on(acme: Tenant, rival: Tenant, grammar: Grammar) -> None:
    refusing = asyncio.create_task(acme.answer(grammar=grammar))
    assert (await rival.answer(max_tokens=20)).finished.usage.output_tokens == 20
    with pytest.raises(EngineRefused) as refused:
        await refusing
    assert refused.value.error.code == "invalid_request"
    assert grammar.kind in refused.value.error.message


async def test_a_grammar_is_of_whole_answers(acme: Tenant) -> None:
    messages = (ChatMessage("user", "hello"), ChatMessage("assistant", '{"a'))
    with pytest.raises(EngineRefused, match="continue_final"):
        await acme.answer(messages=messages, continue_final=True, grammar=Grammar("json_object"))


async def test_a_generation_can_be_cancelled_while_its_grammar_is_compiled(acme: Tenant) -> None:
    stream = acme.start(id="slow", grammar=Grammar("json_schema", '{"type": "integer", "multipleOf": 99999998}'))
    await acme.client.cancel("slow", acme.account)
    events = [event async for event in stream]
    assert events[-1].reason == "cancelled"


async def test_every_token_has_its_log_probabilities_and_the_last_their_sum(acme: Tenant) -> None:
    answer = await acme.answer(max_tokens=12, ignore_eos=True, logprobs=3)
    assert logprobs(answer) == list(answer.token_ids)
    deltas = [event for event in answer.events if isinstance(event, Delta) and event.token_ids]
    assert [delta.score is not None for delta in deltas] == [False] * 11 + [True]
    assert deltas[-1].score == pytest.approx(sum(told.logprob for delta in deltas for told in delta.logprobs))
    assert all(list(told.top) == sorted(told.top, key=lambda pair: -pair[1]) for d in deltas for told in d.logprobs)
    assert logprobs(await acme.answer(max_tokens=3)) == []
