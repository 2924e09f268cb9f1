"""From a request's fields to what the engine is asked for: each field reaches it, and the defaults are OpenAI's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pagoda.api.errors import ApiError
from pagoda.api.requests.fields import SamplingFields
from pagoda.api.sampling import sampling_of
from pagoda_inference.protocol import Grammar, Sampling


def sampling(max_tokens: int | None = None, **fields: Any) -> Sampling:
    return sampling_of(SamplingFields.model_validate(fields), max_tokens, vocabulary_size=1000)


DEFAULTS = Sampling(temperature=1.0)

FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "null": (dict.fromkeys(SamplingFields.model_fields), {}),
    "greedy": ({"temperature": 0}, {"temperature": 0.0}),
    "top_p": ({"top_p": 0.5}, {"top_p": 0.5}),
    "top_p of nothing": ({"top_p": 0}, {"top_p": 0.0}),
    "seed": ({"seed": 5}, {"seed": 5}),
    "a negative seed": ({"seed": -1}, {"seed": 2**63 - 1}),
    "one stop": ({"stop": "x"}, {"stop": ("x",)}),
    "several stops": ({"stop": ["x", "y"]}, {"stop": ("x", "y")}),
    "n": ({"n": 3}, {"n": 3}),
    "top_k": ({"top_k": 7}, {"top_k": 7}),
    "top_k of all": ({"top_k": -1}, {}),
    "min_p": ({"min_p": 0.1}, {"min_p": 0.1}),
    "presence": ({"presence_penalty": -1.5}, {"presence_penalty": -1.5}),
    "frequency": ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    "repetition": ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
    "bias": ({"logit_bias": {"5": -100, "999": 1.5}}, {"logit_bias": ((5, -100.0), (999, 1.5))}),
    "ignore_eos": ({"ignore_eos": True}, {"ignore_eos": True}),
    "beams": (
        {"n": 2, "beam_width": 4, "length_penalty": 0.5, "early_stopping": "never"},
        {"n": 2, "beam_width": 4, "length_penalty": 0.5, "early_stopping": "never", "temperature": 0.0},
    ),
}


@pytest.mark.parametrize("what", FIELDS)
def test_each_field_reaches_the_engine(what: str) -> None:
    fields, expected = FIELDS[what]
    assert sampling(**fields) == msgspec.structs.replace(DEFAULTS, **expected)


def test_what_the_request_gives_in_other_words_reaches_it_too() -> None:
    asked = sampling_of(
        SamplingFields.model_validate({"n": 2}), 9, n=5, logprobs=3, grammar=Grammar("json_object"), vocabulary_size=9
    )
    assert asked == msgspec.structs.replace(DEFAULTS, max_tokens=9, n=5, logprobs=3, grammar=Grammar("json_object"))


def test_every_field_of_the_engines_sampling_can_be_asked_for() -> None:
    """So that a new one is not forgotten here."""
    mapped = {name for _, expected in FIELDS.values() for name in expected} | {"max_tokens", "logprobs", "grammar"}
    assert mapped == {field.name for field in msgspec.structs.fields(Sampling)}


@pytest.mark.parametrize("name", ["1000", "-1", "1.0", "01x", "²", "", "5" * 30])
def test_a_bias_of_what_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(ApiError):
        sampling(logit_bias={name: 1})


def test_a_token_that_is_biased_twice_is_refused() -> None:
    with pytest.raises(ApiError):
        sampling(logit_bias={"5": 1, "05": 2})
