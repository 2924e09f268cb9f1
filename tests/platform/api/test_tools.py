"""Functions: told to the model, enforced by a grammar that the engine's library takes, and read back."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import pytest
from pydantic import TypeAdapter

from pagoda.api.errors import ApiError
from pagoda.api.requests.tools import NamedTool, Tool, ToolChoice
from pagoda.api.tools import AnswerReader, CallArguments, CallBegun, Functions, functions_of
from pagoda_inference.protocol import ChatMessage

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/place"}, "days": {"type": "integer"}},
            "required": ["place"],
            "$defs": {"place": {"type": "string"}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time"}}


def functions(choice: Any = None, parallel: bool | None = None, tools: Any = (WEATHER, CLOCK)) -> Functions | None:
    chosen = None if choice is None else TypeAdapter(ToolChoice).validate_python(choice)
    return functions_of([Tool.model_validate(each) for each in tools], chosen, parallel)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.fixture(scope="module")
def tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer("byte")


def allows(tokenizer: llguidance.LLTokenizer, grammar: str, text: str) -> bool:
    """Whether a whole answer can be ``text``."""
    matcher = llguidance.LLMatcher(tokenizer, grammar)
    assert not matcher.is_error(), matcher.get_error()
    tokens = tokenizer.tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


WEATHER_CALL = '{"name": "get_weather", "arguments": {"place": "Kyoto"}}'
TIME_CALL = '{"name": "get_time", "arguments": {}}'
GRAMMARS: dict[str, tuple[Any, bool | None, list[str], list[str]]] = {
    "auto": (None, None, [WEATHER_CALL, TIME_CALL, f"{WEATHER_CALL}\n{TIME_CALL}", "It rains.\n{}"], ["{", "{}"]),
    "required": ("required", None, [WEATHER_CALL, f"{TIME_CALL}\n{TIME_CALL}"], ["It rains.", ""]),
    "one at a time": ("required", False, [WEATHER_CALL], [f"{TIME_CALL}\n{TIME_CALL}"]),
    "named": (named("get_time"), None, [TIME_CALL], [WEATHER_CALL, "It rains."]),
    "arguments": ("required", None, [], ['{"name": "get_weather", "arguments": {}}', '{"name": "x", "arguments": {}}']),
}


@pytest.mark.parametrize("case", GRAMMARS)
def test_the_grammar_allows_calls_as_chosen_and_nothing_else(tokenizer: Any, case: str) -> None:
    choice, parallel, possible, impossible = GRAMMARS[case]
    chosen = functions(choice, parallel)
    assert chosen is not None
    grammar = chosen.grammar()
    assert grammar.kind == "lark"
    assert [allows(tokenizer, grammar.source, each) for each in possible] == [True] * len(possible)
    assert [allows(tokenizer, grammar.source, each) for each in impossible] == [False] * len(impossible)


def test_the_functions_are_told_in_the_system_message() -> None:
    chosen = functions()
    assert chosen is not None
    (system, user) = chosen.told((ChatMessage("user", "Hello"),))
    assert system.role == "system"
    assert "get_weather" in system.content
    assert user.content == "Hello"
    (system, user) = chosen.told((ChatMessage("system", "Be brief."), ChatMessage("user", "Hello")))
    assert system.content.startswith("Be brief.")
    assert "get_time" in system.content


def test_none_calls_nothing() -> None:
    assert functions("none") is None
    assert functions(tools=()) is None


@pytest.mark.parametrize(("choice", "tools"), [("required", ()), (named("other"), (CLOCK,)), (None, (CLOCK, CLOCK))])
def test_choices_that_cannot_be_made_are_refused(choice: Any, tools: Any) -> None:
    with pytest.raises(ApiError):
        functions(choice, tools=tools)


def test_parameters_nested_too_deeply_are_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "deep", "parameters": schema}}
    chosen = functions(tools=(tool,))
    assert chosen is not None
    with pytest.raises(ApiError):
        chosen.grammar()


def read(text: str, piece: int) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls with their arguments, of an answer that arrives in pieces of some length."""
    reader = AnswerReader()
    found = [each for at in range(0, len(text), piece) for each in reader.read(text[at : at + piece])]
    arguments: dict[int, str] = {}
    names = [each.name for each in found if isinstance(each, CallBegun)]
    for each in found:
        if isinstance(each, CallArguments):
            arguments[each.index] = arguments.get(each.index, "") + each.text
    said = "".join(each for each in found if isinstance(each, str))
    return said, [(name, arguments[number]) for number, name in enumerate(names)]


TRICKY = {"place": 'a "}{" \\ b', "more": {"deep": [{}, {"x": "}"}]}}


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("space", ["", " ", "\n "])
def test_calls_are_read_however_the_answer_is_cut(piece: int, space: str) -> None:
    lines = [
        f'{{{space}"name":{space}"get_weather",{space}"arguments":{space}{json.dumps(each)}{space}}}'
        for each in (TRICKY, {}, {"place": "Kyoto"})
    ]
    said, calls = read("\n".join(lines), piece)
    assert said == ""
    assert [name for name, _ in calls] == ["get_weather"] * 3
    assert [json.loads(text) for _, text in calls] == [TRICKY, {}, {"place": "Kyoto"}]


@pytest.mark.parametrize("piece", [1, 5, 1000])
def test_a_text_is_a_text_with_whatever_braces(piece: int) -> None:
    text = 'See {"name": "get_time", "arguments": {}}'
    assert read(text, piece) == (text, [])


def test_what_never_became_a_call_is_not_told() -> None:
    assert read('{"name": "get_', 3) == ("", [])


CALLING = '{"name": "get_weather", "arguments": {"place": "Kyoto"}}'


@pytest.mark.parametrize("piece", [1, 4, 1000])
def test_a_reader_knows_whether_it_is_in_a_call(piece: int) -> None:
    for text, whole in ((CALLING, 1), (f"{CALLING}\n{CALLING}", 2)):
        for end in range(len(text) + 1):
            reader = AnswerReader()
            for at in range(0, end, piece):
                reader.read(text[at : min(end, at + piece)])
            is_between = end in (0, len(CALLING), len(CALLING) + 1, len(text))
            assert reader.in_a_call is not is_between, text[:end]
        assert reader.calls == whole
    reader = AnswerReader()
    reader.read("It rains: {")
    assert not reader.in_a_call


def test_arguments_are_streamed_as_they_come() -> None:
    reader = AnswerReader()
    assert reader.read('{"name": "get_time"') == []
    begun, opening = reader.read(', "arguments": {')
    assert isinstance(begun, CallBegun)
    assert opening == CallArguments(0, "{")
    assert reader.read('"a"') == [CallArguments(0, '"a"')]


def test_named_tools_are_told_from_words() -> None:
    assert isinstance(TypeAdapter(ToolChoice).validate_python(named("x")), NamedTool)
