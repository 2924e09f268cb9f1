"""Grammars are compiled apart, kept, and followed; what is wrong or too much is refused and harms nobody."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

import numpy as np
import pytest

from pagoda_inference.decoding import grammar_trial
from pagoda_inference.decoding import grammars as module
from pagoda_inference.decoding.grammar_error import GrammarError
from pagoda_inference.decoding.grammar_trial import MOST_OPTIONAL, GrammarRefused, byte_tokenizer
from pagoda_inference.decoding.grammars import Grammars
from pagoda_inference.decoding.guide import Guide, allowed_tokens
from pagoda_inference.protocol import Grammar

END, VOCABULARY = 256, 260
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars() -> Iterator[Grammars]:
    grammars = Grammars(lambda size: byte_tokenizer(size - END), VOCABULARY)
    yield grammars
    grammars.close()


def allowed(guide: Guide) -> list[int]:
    bits, failed = allowed_tokens([guide])
    assert not failed
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


def random_text(guide: Guide, seed: int) -> str:
    return walk(guide, seed).decode()


def walk(guide: Guide, seed: int, most: int = 400) -> bytes:
    """What follows the grammar with tokens chosen blindly; its end is chosen whenever it may be."""
    rng = random.Random(seed)
    written: list[int] = []
    while not guide.complete and len(written) < most:
        tokens = allowed(guide)
        if END in tokens:
            break
        written.append(rng.choice(tokens))
        guide.advance(written[-1:])
    return bytes(written)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_chosen_of_what_is_allowed_is_valid(grammars: Grammars, seed: int) -> None:
    person = json.loads(random_text(grammars.compiled(Grammar("json_schema", json.dumps(PERSON))).guide(), seed))
    assert set(person) == {"name", "age"}
    assert person["age"] in range(10)
    pattern = r"[a-c]{2,5}-\d{3}"
    assert re.fullmatch(pattern, random_text(grammars.compiled(Grammar("regex", pattern)).guide(), seed))
    lark = grammars.compiled(Grammar("lark", 'start: "(" start ")" | "x"'))
    text = random_text(lark.guide(), seed)
    depth = text.count("(")
    assert text == "(" * depth + "x" + ")" * depth
    assert isinstance(json.loads(random_text(grammars.compiled(Grammar("json_object")).guide(), seed)), dict)


def test_a_grammar_that_ended_is_complete_and_one_that_may_end_allows_the_end(grammars: Grammars) -> None:
    guide = grammars.compiled(Grammar("regex", "ab?")).guide()
    assert allowed(guide) == [ord("a")]
    guide.advance(b"a")
    assert not guide.complete
    assert allowed(guide) == [ord("b"), END]
    guide.advance(b"b")
    assert guide.complete
    assert allowed(guide) == [END]


def test_white_space_between_the_parts_of_a_document_is_bounded(grammars: Grammars) -> None:
    guide = grammars.compiled(Grammar("json_object")).guide()
    guide.advance(b"{\n" + b" " * 16)
    assert allowed(guide) == sorted(b'"}')


def test_answers_that_follow_one_grammar_go_their_own_ways(grammars: Grammars) -> None:
    compiled = grammars.compiled(Grammar("regex", "ab|ac"))
    first, second = compiled.guide(), compiled.guide()
    first.advance(b"ab")
    second.advance(b"a")
    assert (first.complete, second.complete) == (True, False)
    assert allowed(second) == [ord("b"), ord("c")]
    assert allowed(compiled.guide()) == [ord("a")]


def test_what_is_allowed_in_many_answers_is_what_is_allowed_in_each(grammars: Grammars) -> None:
    guides = []
    for seed in range(20):
        guide = grammars.compiled(Grammar("json_schema", json.dumps(PERSON))).guide()
        walk(guide, seed, most=seed)
        guides.append(guide)
    together, failed = allowed_tokens(guides)
    assert not failed
    for row, guide in enumerate(guides):
        assert np.array_equal(together[row], allowed_tokens([guide])[0][0])


def test_one_answer_that_leaves_its_grammar_fails_alone(grammars: Grammars) -> None:
    compiled = grammars.compiled(Grammar("regex", "[ab]+c"))
    bad, good = compiled.guide(), compiled.guide()
    with pytest.raises(GrammarError):
        bad.advance(b"az")
    bits, failed = allowed_tokens([good, bad, compiled.guide()])
    assert set(failed) == {1}
    assert np.array_equal(bits[0], bits[2])
    assert allowed(good) == sorted(b"ab")


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (Grammar("json_schema", "[1"), "EOF"),
        (Grammar("json_schema", "7"), "object"),
        (Grammar("json_schema", '{"type": "nosuch"}'), "nosuch"),
        (Grammar("json_schema", '{"not": {"type": "string"}}'), "not"),
        (Grammar("json_schema", '{"$ref": "http://example.com/x"}'), "example.com"),
        (Grammar("json_schema", '{"$ref": "#"}'), "match"),
        (Grammar("json_schema", '{"type": "array", "minItems": 3, "maxItems": 2}'), "minItems"),
        (Grammar("json_schema", '{"items":' * 3000 + "true" + "}" * 3000), "recursion"),
        (Grammar("regex", "(a"), "unclosed"),
        (Grammar("regex", "(?=a)b"), "look"),
        (Grammar("lark", "start: nothing"), "nothing"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else value.source[:30],
)
def test_a_wrong_grammar_is_refused_with_the_reason(grammars: Grammars, grammar: Grammar, reason: str) -> None:
    for _ in range(2):
        with pytest.raises(GrammarRefused, match=reason):
            grammars.compiled(grammar)
        assert grammars.known(grammar)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (Grammar("json_schema", '{"type": "integer", "multipleOf": 99999999}'), "takes more than"),
        (
            Grammar("lark", "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(4000)) + '\nr4000: "a"'),
            "recursion",
        ),
    ],
    ids=["time", "stack"],
)
def test_a_hostile_grammar_ends_nothing_but_its_trial(grammars: Grammars, grammar: Grammar, reason: str) -> None:
    with pytest.raises(GrammarRefused, match=reason):
        grammars.compiled(grammar)
    assert random_text(grammars.compiled(Grammar("regex", "o{2}k")).guide(), 0) == "ook"


def optional_properties(count: int, required: int = 0) -> dict[str, object]:
    properties = {f"property_{number}": {"type": "string", "maxLength": 3} for number in range(count)}
    required_ones = list(properties)[:required]
    return {"type": "object", "properties": properties, "required": required_ones, "additionalProperties": False}


_MANY = json.dumps(optional_properties(900))
_LINES = "start: call\ncall: %json "


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("json_schema", _MANY),
        Grammar("json_schema", json.dumps({"$defs": {"d": json.loads(_MANY)}, "anyOf": [{"$ref": "#/$defs/d"}]})),
        Grammar("lark", _LINES + json.dumps({"type": "object", "properties": {"x": {"items": json.loads(_MANY)}}})),
    ],
    ids=["schema", "definition", "within a grammar of lark's"],
)
def test_an_object_of_too_many_optional_properties_is_refused_before_it_is_followed(
    grammars: Grammars, grammar: Grammar
) -> None:
    with pytest.raises(GrammarRefused, match="an object has 900 properties that are not required, of 490 at most"):
        grammars.compiled(grammar)


@pytest.mark.parametrize(("count", "required"), [(MOST_OPTIONAL, 0), (900, 900), (900, 900 - MOST_OPTIONAL)])
def test_as_many_properties_as_are_allowed_can_be_followed(grammars: Grammars, count: int, required: int) -> None:
    source = json.dumps(optional_properties(count, required))
    document = json.loads(walk(grammars.compiled(Grammar("json_schema", source)).guide(), seed=1, most=100_000))
    assert len(document) >= required


def test_what_fails_soon_after_an_answers_beginning_is_refused_too(grammars: Grammars) -> None:
    alternatives = [{"type": "array", "items": {"enum": [1, f"{number}"]}} for number in range(1500)]
    source = json.dumps({"type": "object", "properties": {"x": {"anyOf": alternatives}}, "required": ["x"]})
    with pytest.raises(GrammarRefused, match=r"ways to go on at one place.*: make it simpler"):
        grammars.compiled(Grammar("json_schema", source))


def test_an_error_on_the_way_has_neither_the_grammars_words_nor_the_answers(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = grammars.compiled(Grammar("json_schema", '{"properties": {"SECRET": {}}, "required": ["SECRET"]}')).guide()
    with pytest.raises(GrammarError) as wrong:
        left.advance(b'{"SECREX')
    assert not wrong.value.too_complex
    assert "SECR" not in wrong.value.reason
    monkeypatch.setattr(grammar_trial.GrammarTrial, "compile", lambda *_: None)
    guide = grammars.compiled(Grammar("json_schema", _MANY.replace("property", "SECRET"))).guide()
    with pytest.raises(GrammarError, match="3599 ways to go on at one place, of 2000 at most") as much:
        guide.advance(b"{")
    assert much.value.too_complex
    assert "SECR" not in much.value.reason


def test_compiled_grammars_are_kept_and_the_least_recently_used_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 3)
    grammars = Grammars(lambda size: byte_tokenizer(size - END), VOCABULARY)
    made = [Grammar("regex", f"a{number}") for number in range(3)]
    first = [grammars.compiled(grammar) for grammar in made]
    assert [grammars.compiled(grammar) for grammar in made] == first
    grammars.compiled(made[0])
    grammars.compiled(Grammar("regex", "another"))
    assert [grammars.known(grammar) for grammar in made] == [True, False, True]
    grammars.close()
    with pytest.raises(GrammarRefused, match="stopping"):
        grammars.compiled(Grammar("regex", "later"))


def test_a_model_without_a_usable_tokenizer_refuses_grammars() -> None:
    def unusable(size: int):
        raise ValueError("it has no bytes")

    grammars = Grammars(unusable, VOCABULARY)
    with pytest.raises(GrammarRefused, match="it has no bytes"):
        grammars.compiled(Grammar("json_object"))
    grammars.close()
