"""Which drafts are right: the answer is the one without drafts, whoever drafts, in distribution and token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler, sample
from pagoda_inference.model.backend import Accepted, Chunk, accept
from pagoda_inference.model.choosing import choose
from pagoda_inference.model.echo import EchoBackend

Drafts = Callable[[int], list[int]]
"""Seed -> the drafts that a chunk has."""


@pytest.mark.parametrize(
    ("drafts", "chosen", "accepted"),
    [
        ([7, 8], [7, 8, 9], (7, 8, 9)),
        ([7, 8], [7, 5, 9], (7, 5)),
        ([7, 8], [6, 8, 9], (6,)),
        ([7], [7, None], (7,)),
        ([7, 8], [6, None, None], (6,)),
    ],
)
def test_the_run_ends_behind_the_first_draft_that_was_wrong(drafts, chosen, accepted):
    assert accept(drafts, chosen) == Accepted(accepted)


def test_a_first_token_that_could_not_be_chosen_leaves_nothing():
    assert accept([7], [None, 7]) is None


# --- the distribution -------------------------------------------------------------------------------------------------

VOCABULARY, SEEDS, LENGTH = 4, 1000, 3
_LOGITS = 0.6 * torch.randn(VOCABULARY**LENGTH, VOCABULARY, generator=torch.Generator().manual_seed(5))


def logits_after(tokens: tuple[int, ...]) -> torch.Tensor:
    """A model of nothing but the tokens before: logits [V]."""
    place = 0
    for token in tokens:
        place = place * VOCABULARY + token + 1
    return _LOGITS[place % len(_LOGITS)]


def answer(seed: int, drafted: Drafts, accepting=accept) -> tuple[int, ...]:
    """The first LENGTH tokens after an empty text, by as many steps as it takes."""
    sampler = Sampler(temperature=0.8, seed=seed)
    tokens: tuple[int, ...] = ()
    while len(tokens) < LENGTH:
        drafts = drafted(seed)[: LENGTH - len(tokens) - 1]
        prefixes = [(*tokens, *drafts[:place]) for place in range(len(drafts) + 1)]
        rows = torch.stack([logits_after(prefix) for prefix in prefixes])
        places = [len(prefix) for prefix in prefixes]
        tokens += accepting(drafts, sample(rows, [sampler] * len(places), places)).tokens
    return tokens


def chi_square(answers: Counter[tuple[int, ...]]) -> float:
    """Against the exact distribution of answers, with VOCABULARY ** LENGTH - 1 degrees of freedom at most."""
    total, statistic = sum(answers.values()), 0.0

    def walk(tokens: tuple[int, ...], probability: float) -> None:
        nonlocal statistic
        if len(tokens) == LENGTH:
            statistic += (answers[tokens] - total * probability) ** 2 / (total * probability)
            return
        for token, share in enumerate((logits_after(tokens) / 0.8).softmax(dim=0).tolist()):
            walk((*tokens, token), probability * share)

    walk((), 1.0)
    return statistic


CRITICAL = 103.4
"""Of chi-square with 63 degrees of freedom, at 0.1 %."""


@pytest.mark.parametrize(
    "drafted",
    [lambda seed: [], lambda seed: [2, 2], lambda seed: [seed % 4, seed // 4 % 4], lambda seed: [0, 3]],
    ids=["none", "constant", "any", "other"],
)
def test_answers_are_distributed_as_the_model_says_whatever_is_drafted(drafted):
    assert chi_square(Counter(answer(seed, drafted) for seed in range(SEEDS))) < CRITICAL


def test_acceptance_that_favours_drafts_would_be_noticed():
    """The control: a draft that is also taken where the model's choice is the token beside it."""

    def lenient(drafts, chosen):
        tokens = []
        for place, token in enumerate(chosen):
            near = place < len(drafts) and abs(drafts[place] - token) == 1
            tokens.append(drafts[place] if near else token)
            if place == len(drafts) or drafts[place] != tokens[-1]:
                break
        return Accepted(tuple(tokens))

    biased = Counter(answer(seed, lambda seed: [seed % 4, seed // 4 % 4], lenient) for seed in range(SEEDS))
    assert chi_square(biased) > 2 * CRITICAL


# --- the backends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(1.0, 0.9, seed=11)], ids=["greedy", "sampled"])
def test_rows_of_logits_give_the_tokens_that_they_give_one_by_one(sampler):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 50, generator=generator)
    alone = [choose(logits[row : row + 1], [Chunk([1], 9 + row, [0], sampler)])[0] for row in range(3)]
    drafted = Chunk([1], 9, [0], sampler, drafts=[alone[0], alone[1]])
    wrong = Chunk([1], 9, [0], sampler, drafts=[alone[0], alone[1] + 1])
    plain = Chunk([1], 20, [0], sampler)
    results = choose(torch.cat([logits[:3], logits[6:], logits[:3]]), [drafted, plain, wrong])
    assert results[0] == Accepted(tuple(alone))
    assert results[1] == choose(logits[6:], [plain])[0]
    assert results[2] == Accepted(tuple(alone[:2]))


def test_a_row_without_numbers_ends_the_run_before_it():
    logits = torch.zeros(3, 5)
    logits[0, 3] = logits[1, 2] = 1
    logits[1] = float("nan")
    results = choose(logits, [Chunk([1], 0, [0], Sampler(), drafts=[3, 2])])
    assert results == [Accepted((3,))]
    logits[0] = float("nan")
    assert choose(logits, [Chunk([1], 0, [0], Sampler(), drafts=[3, 2])]) == [None]


def test_the_echo_model_says_with_drafts_what_it_says_without():
    backend = EchoBackend(block_size=4, pool_tokens=64)
    sampler = Sampler(1.0, seed=4)
    prompt, table = list(b"pagoda"), [3, 9, 1, 7, 5]
    tokens = list(prompt)
    for start in range(8):
        begin = 0 if start == 0 else len(tokens) - 1
        [token] = backend.run([Chunk(tokens[begin:], begin, table, sampler)])
        tokens.append(token)
    right = tokens[len(prompt) :]
    other = EchoBackend(block_size=4, pool_tokens=64)
    [first] = other.run([Chunk(prompt, 0, table, sampler)])
    assert first == right[0]
    [run] = other.run([Chunk([first], len(prompt), table, sampler, drafts=[right[1], right[2] ^ 1, right[3]])])
    assert run == Accepted(tuple(right[1:3]))
    [run] = other.run([Chunk([right[2]], len(prompt) + 2, table, sampler, drafts=right[3:6])])
    assert run == Accepted(tuple(right[3:7])), "what was written for the wrong draft has been written over"
