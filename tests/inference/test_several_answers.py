"""Several answers to one prompt, sampled or searched for: their events, their ends, and what is refused."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import pytest

from pagoda_inference.beam_generation import BeamGeneration
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.model.backend import Candidates
from pagoda_inference.model.echo import END, EchoTokenizer
from pagoda_inference.preparation import InvalidCommand, prepare
from pagoda_inference.protocol import Delta, Generate, Sampling
from pagoda_inference.sampled_generation import SampledGeneration
from pagoda_inference.scheduling.sequence import Sequence

SPOKEN = ("axy", "bxy", "가b")
"""What three answers say, side by side."""


def generation_of(account: str = "acme", **sampling: Any) -> Generation:
    """As the engine gets it: for a prompt of 5 tokens in a context of 100."""
    command = Generate("g", account, f"tenant:{account}", prompt="hello", sampling=Sampling(**sampling))
    log = GenerationLog((account, "g"), Ledger())
    return prepare(command, log, EchoTokenizer(), context_length=100, vocabulary_size=260)


def sampled(account: str = "acme", **sampling: Any) -> SampledGeneration:
    generation = generation_of(account, **sampling)
    assert isinstance(generation, SampledGeneration)
    return generation


def searched(**sampling: Any) -> BeamGeneration:
    generation = generation_of(**sampling)
    assert isinstance(generation, BeamGeneration)
    return generation


def sequences(generation: Generation, count: int) -> list[Sequence]:
    """The prompt's sequence and its forks, as the scheduler makes them."""
    first = generation.request.sequences[0]
    return [first, *(first.forked(index, first.sampler.stream(index)) for index in range(1, count))]


def say(generation: SampledGeneration, sequence: Sequence, text: str) -> list[Delta]:
    return [generation.advance(sequence, token)[0] for token in text.encode()]


def choice(**probabilities: float) -> Candidates:
    """Next characters and their probabilities; ``end`` is the end."""
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    tokens = tuple(END if name == "end" else ord(name) for name, _ in ranked)
    return Candidates(tokens, tuple(math.log(probability) for _, probability in ranked))


# --- one answer -------------------------------------------------------------------------------------------------------


def test_the_events_of_one_answer_say_nothing_of_several() -> None:
    generation = sampled(max_tokens=3)
    [only] = sequences(generation, 1)
    deltas = say(generation, only, "abc")
    assert deltas == [Delta("g", number, text, (ord(text),)) for number, text in enumerate("abc", start=1)]
    assert generation.answers_open == 0
    assert generation.held_text("length") == []


def test_held_text_of_one_answer_is_an_event_only_where_there_is_some() -> None:
    generation = sampled(stop=("bcd",))
    [only] = sequences(generation, 1)
    say(generation, only, "abc")
    assert generation.held_text("cancelled") == [Delta("g", 4, "bc")]
    assert sampled(stop=("bcd",)).held_text("cancelled") == []


# --- several samples --------------------------------------------------------------------------------------------------


def test_each_answer_has_text_stops_and_an_end_of_its_own() -> None:
    generation = sampled(n=3, temperature=1.0, max_tokens=6, stop=("xy",))
    spoken = {sequence: iter(text.encode()) for sequence, text in zip(sequences(generation, 3), SPOKEN, strict=True)}
    deltas = [
        generation.advance(sequence, token)[0]
        for _ in range(4)
        for sequence, tokens in spoken.items()
        for token in islice(tokens, 1)
    ]
    assert [delta.seq for delta in deltas] == list(range(1, len(deltas) + 1))
    assert {index: "".join(d.text for d in deltas if d.index == index) for index in range(3)} == {
        0: "a",
        1: "b",
        2: "가b",
    }
    assert [(d.index, d.finish_reason) for d in deltas if d.finish_reason] == [(0, "stop"), (1, "stop")]
    assert generation.answers_open == 1
    assert generation.output_tokens == 3 + 3 + 4


def test_the_reason_is_on_the_last_event_of_each_answer() -> None:
    generation = sampled(n=2, temperature=1.0, max_tokens=2)
    first, second = sequences(generation, 2)
    assert generation.advance(first, END) == (Delta("g", 1, "", (END,), 0, "stop"), "stop")
    assert generation.advance(second, 97) == (Delta("g", 2, "a", (97,), 1), None)
    assert generation.advance(second, 98) == (Delta("g", 3, "b", (98,), 1, "length"), "length")
    assert generation.answers_open == 0
    assert generation.finish_reason == "length"
    finished = generation.finished(generation.finish_reason, 5.0, blocks_freed=0)
    assert (finished.seq, finished.usage.output_tokens, finished.usage.prompt_tokens) == (4, 3, 5)


def test_an_answer_that_has_ended_takes_no_more_tokens() -> None:
    generation = sampled(n=2, temperature=1.0)
    first, second = sequences(generation, 2)
    generation.advance(first, END)
    with pytest.raises(ValueError, match="answer 0 has ended"):
        generation.advance(first, 97)
    assert generation.advance(second, 97)[0].text == "a"


def test_a_cancel_ends_the_open_answers_and_says_so() -> None:
    generation = sampled(n=3, temperature=1.0, stop=("bcd",))
    first, second, third = sequences(generation, 3)
    generation.advance(first, END)
    say(generation, second, "abc")
    say(generation, third, "x")
    assert generation.held_text("cancelled") == [
        Delta("g", 6, "bc", (), 1, "cancelled"),
        Delta("g", 7, "", (), 2, "cancelled"),
    ]
    assert generation.answers_open == 0
    assert generation.held_text("cancelled") == []
    assert generation.finish_reason == "cancelled"


def test_usage_stands_when_the_scheduler_has_let_the_sequences_go() -> None:
    generation = sampled(n=2, temperature=1.0)
    first, _ = sequences(generation, 2)
    generation.advance(first, 97)
    generation.request.sequences.clear()
    usage = generation.finished("cancelled", 1.0, blocks_freed=3).usage
    assert (usage.prompt_tokens, usage.output_tokens, usage.blocks_freed) == (5, 1, 3)


def test_samplers_of_answers_have_streams_of_their_own() -> None:
    samplers = sampled(n=5, temperature=1.0, seed=3).request.samplers
    assert len({sampler.seed for sampler in samplers}) == 5
    assert samplers == sampled("rival", n=5, temperature=1.0, seed=3).request.samplers
    assert samplers[0] == sampled(temperature=1.0, seed=3).request.samplers[0]


# --- beams ------------------------------------------------------------------------------------------------------------


def test_beams_are_silent_until_the_best_answers_are_told_whole() -> None:
    generation = searched(beam_width=2, n=2, max_tokens=3, early_stopping=True)
    assert (generation.request.beam_width, len(generation.request.samplers)) == (2, 1)
    assert generation.candidates_per_beam == 4
    assert generation.answers_open == 2
    assert generation.advance_beams([choice(a=0.6, b=0.4)]) == [(0, ord("a")), (0, ord("b"))]
    assert generation.advance_beams([choice(c=0.5, end=0.5), choice(d=0.9, end=0.1)]) == [(1, ord("d")), (0, ord("c"))]
    assert generation.output_tokens == 0
    assert generation.advance_beams([choice(end=0.8, x=0.1), choice(y=0.5, z=0.4)]) == []
    deltas = generation.last_deltas()
    assert [(d.seq, d.index, d.text, d.token_ids, d.finish_reason) for d in deltas] == [
        (1, 0, "bd", (98, 100, END), "stop"),
        (2, 1, "acy", (97, 99, 121), "length"),
    ]
    assert [d.score for d in deltas] == pytest.approx([math.log(0.4 * 0.9 * 0.8) / 3, math.log(0.6 * 0.5 * 0.5) / 3])
    assert generation.last_deltas() == []
    assert generation.answers_open == 0
    assert generation.output_tokens == 6


def test_one_answer_by_beams_tells_its_score_and_end_too() -> None:
    generation = searched(beam_width=3, max_tokens=1)
    assert generation.advance_beams([choice(a=0.5, b=0.3, end=0.2)]) == []
    [delta] = generation.last_deltas()
    assert (delta.index, delta.text, delta.finish_reason) == (0, "a", "length")
    assert delta.score == pytest.approx(math.log(0.5))
    assert generation.finish_reason == "length"


def test_a_stop_string_cuts_the_text_of_a_beam() -> None:
    generation = searched(beam_width=1, max_tokens=4, stop=("bc",))
    for character in "abcd":
        generation.advance_beams([choice(**{character: 0.9})])
    [delta] = generation.last_deltas()
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("a", tuple(b"abc"), "stop")
    assert generation.finish_reason == "stop"


def test_a_character_that_a_beam_did_not_complete_is_replaced() -> None:
    generation = searched(beam_width=1, max_tokens=2)
    for byte in "가".encode()[:2]:
        generation.advance_beams([Candidates((byte,), (-0.1,))])
    assert generation.last_deltas()[0].text == "\ufffd"


def test_a_search_that_is_cut_short_tells_the_best_so_far_and_why() -> None:
    generation = searched(beam_width=2, n=2)
    generation.advance_beams([choice(a=0.6, b=0.2, c=0.1)])
    generation.advance_beams([choice(x=0.5, end=0.4), choice(y=0.1)])
    assert [(d.text, d.finish_reason) for d in generation.held_text("cancelled")] == [
        ("ax", "cancelled"),
        ("a", "stop"),
    ]
    assert generation.last_deltas() == []
    assert searched(beam_width=2).held_text("cancelled") == [], "not even begun"


def test_without_an_end_beams_run_to_max_tokens() -> None:
    generation = searched(beam_width=1, max_tokens=2, ignore_eos=True)
    assert generation.advance_beams([choice(end=0.9, a=0.1)]) == [(0, END)]
    assert generation.advance_beams([choice(end=0.9, a=0.1)]) == []
    assert generation.last_deltas()[0].finish_reason == "length"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        ({"n": 0}, "n "),
        ({"n": -1}, "n "),
        ({"n": 65}, "n "),
        ({"beam_width": -1}, "beam_width "),
        ({"beam_width": 17}, "beam_width "),
        ({"beam_width": 2, "n": 3}, "n "),
        ({"beam_width": 2, "temperature": 0.5}, "temperature "),
        ({"beam_width": 2, "length_penalty": math.nan}, "length_penalty "),
        ({"beam_width": 2, "length_penalty": math.inf}, "length_penalty "),
        ({"beam_width": 2, "length_penalty": -5.1}, "length_penalty "),
        ({"length_penalty": math.nan}, "length_penalty "),
    ],
    ids=str,
)
def test_numbers_of_answers_and_beams_out_of_range_are_refused_by_name(sampling: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidCommand) as refused:
        generation_of(**sampling)
    assert refused.value.error.code == "invalid_request"
    assert refused.value.error.message.startswith(field)


@pytest.mark.parametrize(
    "sampling",
    [
        {"n": 64, "temperature": 1.0},
        {"n": 2},
        {"beam_width": 1},
        {"beam_width": 16, "n": 16},
        {"beam_width": 2, "length_penalty": -5.0, "early_stopping": "never"},
    ],
    ids=str,
)
def test_the_ends_of_the_ranges_are_accepted(sampling: dict[str, Any]) -> None:
    assert generation_of(**sampling).answers_open == sampling.get("n", 1)
