"""Answers with drafts are those without: in every way in which they can end, beside others, and after preemption."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import ChunkError
from pagoda_inference.model.echo import END, EchoBackend
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.fairness import OUTPUT_PRICE
from pagoda_inference.speculation.costs import DraftCosts
from pagoda_inference.speculation.prompt_lookup import PromptLookup
from tests.inference.speculation.answering import Answers, Scripted

PROMPT = tuple(b"Tell me about pagodas.")
OTHER = tuple(b"And of gardens, too.")
SPOILED: dict[str, Callable[[int], bool]] = {
    "never": lambda position: False,
    "always": lambda position: True,
    "sometimes": lambda position: position % 3 == 0,
    "in blocks": lambda position: position // 5 % 2 == 0,
}
SAMPLED = {"temperature": 1.0, "seed": 3}


def echo(blocks: int = 64, block_size: int = 8) -> EchoBackend:
    return EchoBackend(block_size=block_size, pool_tokens=blocks * block_size, context_length=400)


def alone(prompt: tuple[int, ...], **sampling: object) -> list[int]:
    answers = Answers(echo())
    heard = answers.ask(prompt, **sampling)
    answers.run()
    return heard.answer


def sampler(sampling: dict) -> Sampler:
    return Sampler.create(sampling.get("temperature", 0.0), 1.0, sampling.get("seed", 0))


def scripted(spoiled: Callable[[int], bool], *prompts: tuple[int, ...], **sampling: object) -> Scripted:
    """Knows more of the answers than is asked for."""
    long = {**sampling, "max_tokens": 120, "ignore_eos": True}
    return Scripted({(prompt, sampler(sampling)): alone(prompt, **long) for prompt in prompts}, spoiled)


@pytest.mark.parametrize("sampling", [{"seed": 0}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("spoiled", SPOILED.values(), ids=SPOILED)
def test_answers_are_the_same_whatever_is_drafted(spoiled, sampling, caplog):
    expected = alone(PROMPT, max_tokens=60, **sampling)
    answers = Answers(echo(), scripted(spoiled, PROMPT, **sampling))
    heard = answers.ask(PROMPT, max_tokens=60, **sampling)
    answers.run()
    assert heard.answer == expected
    assert answers.drafted > 0
    assert "step_failed" not in caplog.text
    assert heard.finished.usage.output_tokens == len(expected)
    assert answers.account().tokens_out == len(expected)


def test_right_drafts_save_steps():
    plain, drafted = Answers(echo()), Answers(echo(), scripted(SPOILED["never"], PROMPT, seed=0))
    for answers in (plain, drafted):
        answers.ask(PROMPT, max_tokens=60, seed=0, ignore_eos=True)
        answers.run()
    assert plain.steps == 60
    assert drafted.steps <= 24
    assert drafted.accepted == drafted.drafted == plain.steps - drafted.steps


@pytest.mark.parametrize("most", range(1, 12))
def test_no_answer_is_longer_than_it_may_be(most):
    answers = Answers(echo(), scripted(SPOILED["never"], PROMPT, seed=0))
    heard = answers.ask(PROMPT, max_tokens=most, seed=0, ignore_eos=True)
    answers.run()
    assert len(heard.answer) == most == answers.account().tokens_out
    assert answers.steps + answers.accepted == most, "nothing was drafted behind the last token"
    assert heard.finished.reason == "length"


def test_an_end_token_within_an_accepted_run_ends_the_answer_there():
    """What comes behind it is told and charged to nobody."""
    prompt = next(
        prompt
        for prompt in (tuple(f"question {number}".encode()) for number in range(50))
        if len(alone(prompt, max_tokens=200, seed=0)) % 8 in (2, 3, 4)
    )
    expected = alone(prompt, max_tokens=200, seed=0)
    assert expected[-1] == END
    plain, drafted = Answers(echo()), Answers(echo(), scripted(SPOILED["never"], prompt, seed=0))
    for answers in (plain, drafted):
        heard = answers.ask(prompt, max_tokens=200, seed=0)
        answers.run()
        assert heard.answer == expected
        assert heard.finished.reason == "stop"
        assert heard.finished.usage.output_tokens == len(expected) == answers.account().tokens_out
    assert drafted.accepted > drafted.drafted - 4
    assert drafted.account().service == pytest.approx(plain.account().service)


def test_a_stop_string_within_an_accepted_run_ends_the_answer_there():
    text = bytes(token for token in alone(PROMPT, max_tokens=60, seed=0, ignore_eos=True) if token < END)
    for place in range(12, 30):
        stop = text[place : place + 2].decode(errors="replace")
        heard = []
        for drafter in (None, scripted(SPOILED["never"], PROMPT, seed=0)):
            answers = Answers(echo(), drafter)
            heard.append(answers.ask(PROMPT, max_tokens=60, seed=0, ignore_eos=True, stop=(stop,)))
            answers.run()
            assert answers.account().tokens_out == len(heard[-1].answer)
        plain, drafted = heard
        assert (drafted.answer, drafted.text) == (plain.answer, plain.text)
        assert drafted.finished.usage.output_tokens == plain.finished.usage.output_tokens


def test_a_cached_prefix_and_what_comes_behind_it_are_right():
    """A conversation goes on from blocks that were filled by accepted drafts."""
    expected = alone(PROMPT, max_tokens=40, seed=0, ignore_eos=True)
    longer = (*PROMPT, *expected, *OTHER)
    wanted = alone(longer, max_tokens=40, seed=0, ignore_eos=True)
    answers = Answers(echo(), scripted(SPOILED["sometimes"], PROMPT, longer, seed=0))
    assert_same = answers.ask(PROMPT, max_tokens=40, seed=0, ignore_eos=True)
    answers.run()
    again = answers.ask(longer, max_tokens=40, seed=0, ignore_eos=True)
    answers.run()
    assert assert_same.answer == expected
    assert again.answer == wanted
    assert again.started.cached_tokens >= len(PROMPT) + len(expected) - 8


def test_several_answers_share_their_prompt_and_are_those_without_drafts():
    """Two answers copy the prompt's last block before they write; the one left alone is drafted for."""
    options = {"n": 2, "temperature": 1.0, "seed": 8, "max_tokens": 150}
    plain = Answers(echo())
    expected = plain.ask(PROMPT, **options)
    plain.run()
    first = Sampler.create(1.0, 1.0, 8)
    known = {(PROMPT, first.stream(index)): expected.tokens[index] for index in range(2)}
    answers = Answers(echo(), Scripted(known, SPOILED["sometimes"]))
    heard = answers.ask(PROMPT, **options)
    answers.run()
    assert len(expected.tokens[0]) != len(expected.tokens[1])
    assert heard.tokens == expected.tokens
    assert answers.accepted > 0


@pytest.mark.parametrize("sampling", [{"seed": 0}, SAMPLED], ids=["greedy", "sampled"])
def test_answers_after_preemption_are_the_same(sampling):
    """A pool that cannot hold both answers."""
    drafter = scripted(SPOILED["sometimes"], PROMPT, OTHER, **sampling)
    answers = Answers(echo(blocks=11), drafter)
    heard = [answers.ask(prompt, max_tokens=50, ignore_eos=True, **sampling) for prompt in (PROMPT, OTHER)]
    answers.run()
    for prompt, each in zip((PROMPT, OTHER), heard, strict=True):
        assert each.answer == alone(prompt, max_tokens=50, ignore_eos=True, **sampling)
    assert sum(each.finished.usage.preemptions for each in heard) >= 1
    assert answers.accepted > 0


def test_beams_are_not_drafted_for():
    answers = Answers(echo(), scripted(SPOILED["never"], PROMPT, seed=0))
    answers.ask(PROMPT, max_tokens=20, beam_width=2)
    answers.run()
    assert answers.drafted == 0


# --- others beside it -------------------------------------------------------------------------------------------------


def test_drafts_stay_within_the_budget_of_a_step():
    drafter = scripted(SPOILED["never"], PROMPT, OTHER, seed=0)
    answers = Answers(echo(blocks=16, block_size=32), drafter, token_budget=9)
    heard = answers.ask(PROMPT, max_tokens=60, seed=0, ignore_eos=True)
    rival = answers.ask(OTHER, "rival", max_tokens=60, seed=0, ignore_eos=True)
    tokens = []
    counted = answers.engine._observer.step
    answers.engine._observer.step = lambda step, seconds: (
        counted(step, seconds), tokens.append(sum(chunk.count for chunk in step.chunks) + step.drafted)
    )  # fmt: skip
    answers.run()
    assert max(tokens) <= 9
    assert heard.answer == alone(PROMPT, max_tokens=60, seed=0, ignore_eos=True)
    assert rival.answer == alone(OTHER, max_tokens=60, seed=0, ignore_eos=True)
    assert answers.drafted > 0


def test_a_rival_pays_for_and_gets_what_it_does_without_drafts_beside_it():
    """Only one tenant's text is guessed: the other's answer, usage and service stay."""
    told = []
    for drafter in (None, scripted(SPOILED["sometimes"], PROMPT, seed=0)):
        answers = Answers(echo(), drafter)
        answers.scheduler.set_accounts([Account("acme"), Account("rival")], 1)
        answers.ask(PROMPT, max_tokens=60, seed=0, ignore_eos=True)
        rival = answers.ask(OTHER, "rival", max_tokens=60, seed=0, ignore_eos=True)
        answers.run()
        told.append((rival.answer, rival.finished.usage.output_tokens, answers.account("rival").tokens_out))
        assert answers.account().tokens_out == 60
    assert told[0] == told[1]


def test_who_is_far_ahead_of_a_tenant_that_waits_gets_no_drafts():
    answers = Answers(echo())
    answers.scheduler.set_accounts([Account("acme"), Account("rival")], 1)
    workload = answers.scheduler._workload
    acme, rival = answers.account(), answers.account("rival")
    assert answers.scheduler.may_decode(acme, 10**6), "nobody waits"
    workload.counters.lift(rival, list)
    slack = OUTPUT_PRICE * answers.scheduler.token_budget
    acme.service = rival.service + slack - 3 * OUTPUT_PRICE
    assert answers.scheduler.may_decode(acme, 3)
    assert not answers.scheduler.may_decode(acme, 4)


def test_drafts_that_cannot_pay_are_hardly_made():
    """A draft that costs more than what it saves on average: tried now and then, as the text may have changed."""
    costs = DraftCosts(base_s=1.0, row_s=0.1, draft_s=0.9)
    answers = Answers(echo(), scripted(SPOILED["always"], PROMPT, seed=0), costs=costs)
    answers.ask(PROMPT, max_tokens=100, seed=0, ignore_eos=True)
    answers.run()
    assert 1 <= answers.drafted <= 4


def test_nobody_is_asked_where_the_batch_is_so_large_that_no_draft_can_pay():
    """A right draft saves a share of a step: alone 1.1 s, beside another 0.6."""
    costs = DraftCosts(base_s=1.0, row_s=0.1, draft_s=0.7)
    drafter = scripted(SPOILED["never"], PROMPT, OTHER, seed=0)
    answers = Answers(echo(), drafter, costs=costs)
    answers.ask(PROMPT, max_tokens=100, seed=0, ignore_eos=True)
    answers.ask(OTHER, "rival", max_tokens=100, seed=0, ignore_eos=True)
    answers.run()
    assert answers.drafted == 0
    answers.ask(PROMPT, max_tokens=100, seed=0, ignore_eos=True)
    answers.run()
    assert answers.drafted > 0


# --- failures ---------------------------------------------------------------------------------------------------------


class Broken:
    def __init__(self) -> None:
        self.asked = 0

    def propose(self, sequences, chunks, most):
        self.asked += 1
        raise RuntimeError("no guess")


def test_a_drafter_that_fails_costs_nothing_but_drafts_and_is_asked_no_more():
    drafter = Broken()
    answers = Answers(echo(), drafter)
    heard = answers.ask(PROMPT, max_tokens=60, seed=0)
    answers.run()
    assert heard.answer == alone(PROMPT, max_tokens=60, seed=0)
    assert drafter.asked == 3


class FailsWithDrafts(EchoBackend):
    """Fails whenever there are drafts: half of the step is written by then."""

    failed = 0

    def run(self, chunks):
        if any(chunk.drafts for chunk in chunks):
            self.failed += 1
            super().run(chunks)
            raise RuntimeError("no memory for drafts")
        return super().run(chunks)


def test_a_step_that_fails_is_computed_again_without_drafts():
    backend = FailsWithDrafts(block_size=8, pool_tokens=512, context_length=400)
    answers = Answers(backend, scripted(SPOILED["sometimes"], PROMPT, seed=0))
    heard = answers.ask(PROMPT, max_tokens=60, seed=0)
    answers.run()
    assert backend.failed > 0
    assert heard.answer == alone(PROMPT, max_tokens=60, seed=0)


class NoNumbers(EchoBackend):
    """The second chunk of a step with drafts has no answer."""

    def run(self, chunks):
        results = super().run(chunks)
        if len(chunks) > 1 and chunks[1].drafts:
            results[1] = ChunkError("no numbers")
        return results


def test_a_chunk_whose_drafts_could_not_be_checked_fails_alone():
    backend = NoNumbers(block_size=8, pool_tokens=512, context_length=400)
    answers = Answers(backend, scripted(SPOILED["sometimes"], PROMPT, OTHER, seed=0))
    heard = answers.ask(PROMPT, max_tokens=60, seed=0)
    failed = answers.ask(OTHER, "rival", max_tokens=60, seed=0, ignore_eos=True)
    answers.run()
    assert heard.answer == alone(PROMPT, max_tokens=60, seed=0)
    assert failed.finished.error.code == "model_error"


# --- prompt lookup ----------------------------------------------------------------------------------------------------


class Parrot(EchoBackend):
    """Says the prompt again and again."""

    def _next_token(self, chunk, sampler, drafts=0):
        return self._read(chunk, chunk.start + len(chunk.token_ids) + drafts - len(PROMPT))[0]


def test_a_text_that_repeats_its_prompt_is_guessed_by_looking_there():
    backend = Parrot(block_size=8, pool_tokens=512, context_length=400)
    answers = Answers(backend, PromptLookup())
    heard = answers.ask(PROMPT, max_tokens=88, ignore_eos=True)
    answers.run()
    assert heard.answer == [*PROMPT * 4]
    assert answers.accepted >= 60
    assert answers.steps <= 88 - answers.accepted


def test_looking_up_changes_no_answer_of_a_text_that_does_not_repeat_itself():
    answers = Answers(echo(), PromptLookup())
    heard = [answers.ask(prompt, max_tokens=100, **SAMPLED) for prompt in (PROMPT, OTHER)]
    answers.run()
    assert [each.answer for each in heard] == [alone(prompt, max_tokens=100, **SAMPLED) for prompt in (PROMPT, OTHER)]
    assert answers.drafted > answers.accepted
