"""A draft model over the same blocks: two models as one backend, in float32 and with the KV-echo model."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Accepted, Chunk, ChunkError
from pagoda_inference.model.echo import EchoBackend
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_inference.speculation.draft_model import SpeculativeBackend
from pagoda_kernels import torch_kernels
from tests.inference.model.paged_model import backend_of
from tests.inference.speculation.answering import Answers, Heard
from tests.inference.tiny_models import VOCABULARY, tiny_model

PROMPTS = [[(seed * 31 + 7 * index * index) % VOCABULARY for index in range(n)] for seed, n in enumerate((21, 9, 14))]


def tiny(seed: int = 0, noise: float = 0.0) -> TransformersBackend:
    """A llama with grouped heads; ``noise`` on its weights makes it agree with the one without sometimes."""
    model = tiny_model("llama", seed)
    if noise:
        torch.manual_seed(77)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += noise * torch.randn_like(parameter)
    return backend_of(model, torch_kernels())


def ask(answers: Answers, sampling: dict[str, Any]) -> list[Heard]:
    """Two tenants' prompts, and then one that goes on from the first's cached blocks."""
    heard = [answers.ask(PROMPTS[0], **sampling), answers.ask(PROMPTS[1], "rival", **sampling)]
    answers.run()
    heard += [answers.ask([*PROMPTS[0], *heard[0].answer, 5, 6], **sampling), answers.ask(PROMPTS[2], **sampling)]
    answers.run()
    return heard


GREEDY = {"max_tokens": 16, "ignore_eos": True}
SAMPLED = {"max_tokens": 16, "ignore_eos": True, "temperature": 0.9, "top_p": 0.95, "seed": 6}


@cache
def without_drafts(kind: str) -> list[list[int]]:
    return [heard.answer for heard in ask(Answers(tiny()), GREEDY if kind == "greedy" else SAMPLED)]


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("draft", ["the same", "another", "a similar one"])
def test_answers_are_the_targets_own_whoever_drafts(draft, kind):
    other = {"the same": {}, "another": {"seed": 4}, "a similar one": {"noise": 0.003}}[draft]
    backend = SpeculativeBackend(tiny(), tiny(**other))
    answers = Answers(backend, backend)
    heard = ask(answers, GREEDY if kind == "greedy" else SAMPLED)
    assert [each.answer for each in heard] == without_drafts(kind)
    assert heard[2].started.cached_tokens >= 32
    rate = answers.accepted / answers.drafted
    if draft == "the same":
        assert rate == 1
        assert answers.steps < 24
    elif draft == "another":
        assert rate < 0.1
    else:
        assert 0.1 < rate < 1


def test_a_draft_that_draws_with_the_requests_own_numbers_agrees_more_often():
    """The same model with numbers of its own says the same tokens only by chance."""

    class OwnNumbers(SpeculativeBackend):
        def _next(self, chunk, drafts):
            chunk = super()._next(chunk, drafts)
            chunk.sampler = Sampler(0.9, 0.95, seed=chunk.start)
            return chunk

    rates = []
    for kind in (SpeculativeBackend, OwnNumbers):
        backend = kind(tiny(), tiny())
        answers = Answers(backend, backend)
        assert [each.answer for each in ask(answers, SAMPLED)] == without_drafts("sampled")
        rates.append(answers.accepted / answers.drafted)
    assert rates[0] == 1
    assert rates[1] < 0.9


def test_the_draft_model_has_the_kv_that_it_would_have_alone():
    """Of everything that is computed, behind accepted and rejected drafts alike."""
    backend = SpeculativeBackend(tiny(), tiny(noise=0.02))
    answers = Answers(backend, backend)
    heard = answers.ask(PROMPTS[0], max_tokens=40, ignore_eos=True)
    for _ in range(12):
        answers.engine.turn()
    [request] = answers.scheduler.running
    sequence = request.sequences[0]
    alone = tiny(noise=0.02)
    table = list(range(len(sequence.table.blocks)))
    alone.run([Chunk(sequence.tokens[: sequence.computed], 0, table)])
    full = sequence.computed // backend.block_size
    assert full > len(PROMPTS[0]) // backend.block_size, "blocks of the answer are among them"
    for own, other in zip(
        backend.draft.read_blocks(sequence.table.blocks[:full]), alone.read_blocks(table[:full]), strict=True
    ):
        torch.testing.assert_close(numbers(own), numbers(other), rtol=1e-4, atol=1e-5)
    answers.run()
    assert heard.answer[:16] == without_drafts("greedy")[0]


def numbers(payload: bytearray) -> torch.Tensor:
    return torch.frombuffer(bytearray(payload), dtype=torch.float32)


# --- the two as one ---------------------------------------------------------------------------------------------------


def pair(draft: type[EchoBackend] = EchoBackend, blocks: int = 32) -> SpeculativeBackend:
    target = EchoBackend(block_size=8, pool_tokens=blocks * 8, context_length=200)
    return SpeculativeBackend(target, draft(block_size=8, pool_tokens=blocks * 8, context_length=200))


def test_a_blocks_payload_is_that_of_both_models():
    backend, other = pair(), pair()
    prompt = list(b"a text of two blocks.")
    backend.run([Chunk(prompt, 0, [4, 2, 7], Sampler())])
    payloads = backend.read_blocks([4, 2, 7])
    assert [len(payload) for payload in payloads] == [backend.bytes_per_block] * 3
    other.write_blocks([1, 3, 5], payloads)
    assert other.target.read_blocks([1, 3, 5]) == backend.target.read_blocks([4, 2, 7])
    assert other.draft.read_blocks([1, 3, 5]) == backend.draft.read_blocks([4, 2, 7])
    with pytest.raises(ValueError, match="bytes"):
        other.write_blocks([1], [payloads[0][:-1]])


def test_a_copy_is_made_in_both_pools():
    backend = pair()
    backend.run([Chunk(list(b"pagoda"), 0, [4])])
    backend.copy_blocks([(4, 9)])
    assert backend.draft.read_blocks([9]) == backend.target.read_blocks([9]) == backend.target.read_blocks([4])


def test_the_last_draft_of_a_run_that_was_right_is_computed_too():
    backend = pair()
    prompt = list(b"pagoda")
    [first] = backend.run([Chunk(prompt, 0, [4, 6], Sampler())])
    chunk = Chunk([first], 6, [4, 6], Sampler())
    [chunk.drafts] = backend.propose([None], [chunk], [4])
    [run] = backend.run([chunk])
    assert run == Accepted((*chunk.drafts, run.tokens[-1]))
    assert backend.draft.read_blocks([4, 6]) == backend.target.read_blocks([4, 6])


def test_guesses_that_the_target_has_no_token_for_are_dropped():
    class Larger(EchoBackend):
        def _next_token(self, chunk, sampler, drafts=0):
            return 260 if chunk.start == 8 else super()._next_token(chunk, sampler, drafts)

    backend = pair(Larger)
    [first] = backend.run([Chunk(list(b"pagoda"), 0, [4, 6], Sampler())])
    [drafts] = backend.propose([None], [Chunk([first], 6, [4, 6], Sampler())], [5])
    assert len(drafts) == 2


class Fails(EchoBackend):
    asked = 0

    def run(self, chunks):
        Fails.asked += 1
        raise RuntimeError("out of memory")


def test_a_draft_model_that_fails_costs_guesses_alone_and_is_asked_no_more():
    Fails.asked = 0
    plain, backend = Answers(EchoBackend(block_size=8, pool_tokens=256, context_length=200)), pair(Fails)
    answers = Answers(backend, backend)
    told = []
    for each in (plain, answers):
        heard = each.ask(list(b"Tell me about pagodas."), max_tokens=40, ignore_eos=True)
        rival = each.ask(list(b"And gardens."), "rival", max_tokens=40, ignore_eos=True)
        each.run()
        told.append((heard.answer, rival.answer))
    assert told[0] == told[1]
    assert Fails.asked == 3
    assert answers.drafted == 0


def test_a_draft_without_numbers_ends_the_guess():
    class NoNumbers(EchoBackend):
        def run(self, chunks):
            return [ChunkError("no numbers") if chunk.start > 7 else result
                    for chunk, result in zip(chunks, super().run(chunks), strict=True)]  # fmt: skip

    backend = pair(NoNumbers)
    [first] = backend.run([Chunk(list(b"pagoda"), 0, [4, 6], Sampler())])
    [drafts] = backend.propose([None], [Chunk([first], 6, [4, 6], Sampler())], [5])
    assert len(drafts) == 2


@pytest.mark.parametrize(
    ("draft", "named"),
    [
        ({"pool_tokens": 64, "context_length": 200}, "8 of 8"),
        ({"pool_tokens": 256, "context_length": 100}, "PAGODA_ENGINE_CONTEXT_LENGTH"),
    ],
)
def test_models_that_do_not_fit_together_are_refused(draft, named):
    target = EchoBackend(block_size=8, pool_tokens=256, context_length=200)
    with pytest.raises(ModelLoadError, match=named):
        SpeculativeBackend(target, EchoBackend(block_size=8, **draft))


def test_kv_of_a_pair_is_never_taken_for_that_of_its_target():
    backend = pair()
    assert backend.fingerprint != backend.target.fingerprint
