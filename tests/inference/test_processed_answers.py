"""Penalties, biases, grammars, log probabilities through the whole engine: in chunks, forked, preempted, in error."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.grammar_error import GrammarError
from pagoda_inference.decoding.guide import Guide
from pagoda_inference.protocol import Grammar
from tests.inference.processing_world import END, PROMPT, Heard, World, own_logits

PENALTIES: dict[str, Any] = {
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "repetition_penalty": 1.3,
    "logit_bias": ((ord("q"), 2.0), (ord("z"), -100.0)),
}
WORDS = Grammar("regex", r"([a-f]{1,4} ){6,12}[a-f]+\.")
CASES: dict[str, dict[str, Any]] = {
    "penalties": {**PENALTIES, "ignore_eos": True},
    "grammar": {"grammar": WORDS},
    "everything": {**PENALTIES, "grammar": WORDS, "logprobs": 3},
}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def alone(prompt: list[int] = PROMPT, **sampling: Any) -> Heard:
    """What is answered with all the room there is, and nobody beside it."""
    world = World()
    heard = world.ask(prompt, **sampling)
    world.run()
    world.close()
    return heard


def test_greedy_tokens_and_log_probabilities_are_those_of_the_definition(world: World) -> None:
    heard = world.ask(max_tokens=24, ignore_eos=True, logprobs=4, **PENALTIES)
    world.ask(list(b"a rival's prompt"), "rival", max_tokens=30, ignore_eos=True)
    world.run()
    tokens = list(PROMPT)
    for token, told in zip(heard.tokens[0], heard.logprobs[0], strict=True):
        raw = own_logits(tokens)
        logits = raw.clone()
        seen = sorted(set(tokens))
        logits[seen] = torch.where(logits[seen] > 0, logits[seen] / 1.3, logits[seen] * 1.3)
        for written, times in Counter(tokens[len(PROMPT) :]).items():
            logits[written] -= 0.4 + 0.3 * times
        logits[ord("q")] += 2.0
        logits[ord("z")] -= 100.0
        assert token == int(logits.argmax())
        logprobs = raw.log_softmax(dim=-1)
        assert told.token_id == token
        assert told.logprob == pytest.approx(float(logprobs[token]), abs=1e-4)
        assert [value for _, value in told.top] == pytest.approx(logprobs.topk(4).values.tolist(), abs=1e-4)
        tokens.append(token)
    assert heard.scores[0] == pytest.approx(sum(told.logprob for told in heard.logprobs[0]))


def test_without_a_wish_there_are_no_log_probabilities(world: World) -> None:
    heard = world.ask(max_tokens=4)
    world.run()
    assert heard.logprobs[0] == []
    assert heard.scores == {}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_the_same_after_preemption_and_in_chunks(case: str, mode: Any, temperature: float) -> None:
    options = {"max_tokens": 60, "seed": 11, "temperature": temperature, **CASES[case]}
    prompts = [PROMPT, list(b"another prompt of acme"), list(b"and a third one that is a bit longer")]
    expected = [alone(prompt, **options) for prompt in prompts]
    world = World(blocks=40, mode=mode, token_budget=9)
    heard = [world.ask(prompt, **options) for prompt in prompts]
    world.run()
    world.close()
    assert world.preemptions[mode] > 0
    assert [each.said for each in heard] == [each.said for each in expected]
    assert [each.texts for each in heard] == [each.texts for each in expected]
    for each, other in zip(heard, expected, strict=True):
        told, others = each.logprobs[0], other.logprobs[0]
        assert [one.token_id for one in told] == [one.token_id for one in others]
        assert [one.logprob for one in told] == pytest.approx([one.logprob for one in others], abs=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_several_answers_have_a_state_each(case: str, world: World) -> None:
    options = {"max_tokens": 40, "seed": 5, "temperature": 1.2, **CASES[case]}
    heard = world.ask(n=3, **options)
    world.run()
    first = alone(**options)
    assert heard.tokens[0] == first.tokens[0]
    assert len({tuple(tokens) for tokens in heard.said}) == 3
    if "grammar" in options:
        for index, text in heard.texts.items():
            assert re.fullmatch(WORDS.source, text) or len(heard.tokens[index]) == 40
    if "logprobs" in options:
        assert {index: len(told) for index, told in heard.logprobs.items()} == {
            index: len(tokens) for index, tokens in heard.tokens.items()
        }
        assert sorted(heard.scores) == [0, 1, 2]


@pytest.mark.parametrize("case", CASES)
def test_a_cached_prompt_and_drafts_for_others_change_nothing(case: str) -> None:
    options = {"max_tokens": 40, "seed": 5, **CASES[case]}
    world = World(speculate=True)
    first = world.ask(**options)
    world.run()
    again = world.ask(**options)
    rival = world.ask(account="rival", max_tokens=60, ignore_eos=True)
    world.run()
    world.close()
    assert again.finished is not None
    assert again.finished.usage.cached_tokens > 0
    assert first.said == again.said == alone(**options).said
    assert rival.said == alone(max_tokens=60, ignore_eos=True).said


def test_an_answer_ends_where_its_grammar_does(world: World) -> None:
    whole = world.ask(grammar=Grammar("regex", "abc"), max_tokens=10)
    exactly = world.ask(grammar=Grammar("regex", "abc"), max_tokens=3)
    cut = world.ask(grammar=Grammar("regex", "abc"), max_tokens=2)
    stopped = world.ask(grammar=Grammar("regex", "abc"), stop=("b",))
    may_end = world.ask(grammar=Grammar("regex", "a(bc)?"), logit_bias=((END, 100.0),))
    goes_on = world.ask(grammar=Grammar("regex", "a(bc)?"), logit_bias=((END, -100.0),))
    world.run()
    heard = (whole, exactly, cut, stopped, may_end, goes_on)
    assert [each.texts[0] for each in heard] == ["abc", "abc", "ab", "a", "a", "abc"]
    reasons = [each.finished.reason for each in heard if each.finished is not None]
    assert reasons == ["stop", "stop", "length", "stop", "stop", "stop"]
    assert whole.tokens[0] == list(b"abc")
    assert may_end.tokens[0] == [ord("a"), END]


def test_documents_of_a_random_model_are_valid(world: World) -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 3, "maximum": 40}},
        "required": ["kind", "age"],
        "additionalProperties": False,
    }
    grammar = Grammar("json_schema", json.dumps(schema))
    answers = [world.ask(grammar=grammar, temperature=1.5, seed=seed, max_tokens=120) for seed in range(12)]
    world.run()
    for heard in answers:
        assert heard.finished is not None
        assert heard.finished.reason == "stop"
        document = json.loads(heard.texts[0])
        assert document["kind"] in ("cat", "dog")
        assert 3 <= document["age"] <= 40


@pytest.mark.parametrize("where", ["mask", "advance"])
def test_a_grammar_that_fails_ends_its_answer_alone(
    where: str, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As if one answer had become too complex in its fourth token."""
    from pagoda_inference.decoding import processing

    bad = world.ask(grammar=Grammar("regex", "[a-z]{30}"), max_tokens=30)
    good = world.ask(grammar=Grammar("regex", "[0-9]{30}"), account="rival", max_tokens=30)
    plain = world.ask(max_tokens=30, ignore_eos=True)
    for _ in range(4):
        world.engine.turn()
    [victim] = [
        request.sequences[0].sampler.answer.guide  # type: ignore[attr-defined]
        for request in world.scheduler.running
        if request.account == "acme" and hasattr(request.sequences[0].sampler, "answer")
    ]
    if where == "advance":
        original = Guide.advance

        def fail(guide: Guide, tokens: Any) -> None:
            if guide is victim:
                raise GrammarError("it has 9 ways to go on", too_complex=True)
            original(guide, tokens)

        monkeypatch.setattr(Guide, "advance", fail)
    else:
        masks = processing.allowed_tokens

        def failing(guides: Any) -> Any:
            bits, failed = masks(guides)
            error = GrammarError("the answer left it", too_complex=False)
            return bits, failed | {row: error for row, guide in enumerate(guides) if guide is victim}

        monkeypatch.setattr(processing, "allowed_tokens", failing)
    world.run()
    assert bad.finished is not None
    assert bad.finished.reason == "error"
    assert bad.finished.error is not None
    assert bad.finished.id in bad.finished.error.message
    [logged] = [record.fields for record in caplog.records if record.getMessage() == "generation_failed"]  # type: ignore[attr-defined]
    if where == "advance":
        assert bad.finished.error.code == "invalid_request"
        assert "it has 9 ways to go on" in bad.finished.error.message
        assert logged["reason"] == "it has 9 ways to go on"
    else:
        assert bad.finished.error.code == "model_error"
        assert logged["reason"] == "the answer left it"
    assert (logged["id"], logged["account"]) == (bad.finished.id, "acme")
    assert 0 < len(bad.tokens[0]) < 30
    assert good.texts[0].isdigit()
    assert len(good.texts[0]) == 30
    assert plain.said == alone(max_tokens=30, ignore_eos=True).said


def test_a_banned_token_never_comes_and_a_wanted_one_always(world: World) -> None:
    wanted = world.ask(max_tokens=5, logit_bias=((ord("w"), 100.0),))
    free = world.ask(max_tokens=5, ignore_eos=True)
    world.run()
    banned = world.ask(max_tokens=20, ignore_eos=True, logit_bias=((free.tokens[0][0], -100.0),))
    world.run()
    assert wanted.texts[0] == "wwwww"
    assert free.tokens[0][0] not in banned.tokens[0]


def test_scores_are_sums_and_finite(world: World) -> None:
    heard = world.ask(n=2, temperature=1.0, seed=3, max_tokens=6, logprobs=0)
    world.run()
    for index, told in heard.logprobs.items():
        assert heard.scores[index] == pytest.approx(math.fsum(one.logprob for one in told))
        assert all(one.top == () and one.logprob <= 0 for one in told)
