"""A token is chosen from its own logits, parameters and position; nothing else."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler, sample, sampling_arrays
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import Generate, Sampling


def test_greedy_takes_the_greatest_logit_of_each_row() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, -1.0, 2.0]])
    assert sample(logits, [Sampler(), Sampler()], [4, 9]) == [1, 0]


def test_a_token_does_not_depend_on_the_rows_beside_it() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 1000)
    samplers = [Sampler(0.3 + index, 0.9, seed=index) for index in range(6)]
    together = sample(logits, samplers, list(range(6)))
    alone = [sample(logits[i : i + 1], [samplers[i]], [i])[0] for i in range(6)]
    assert together == alone


def test_the_same_seed_and_position_give_the_same_token_and_other_positions_other_numbers() -> None:
    sampler = Sampler(1.0, 1.0, seed=7)
    assert sampler.uniform(3) == Sampler(0.5, 0.1, seed=7).uniform(3)
    numbers = [sampler.uniform(position) for position in range(2000)]
    assert len(set(numbers)) == 2000
    assert 0.48 < sum(numbers) / 2000 < 0.52


def test_a_rivals_seed_gives_another_stream() -> None:
    assert Sampler(seed=1).uniform(0) != Sampler(seed=2).uniform(0)
    assert Sampler.create(1.0).seed != Sampler.create(1.0).seed


def test_the_first_of_several_answers_is_the_one_given_alone_and_the_others_are_repeatable() -> None:
    sampler = Sampler(0.7, 0.9, seed=7)
    assert sampler.stream(0) is sampler
    streams = [sampler.stream(index) for index in range(64)]
    assert streams == [Sampler(0.7, 0.9, seed=7).stream(index) for index in range(64)]
    rivals = [Sampler(0.7, 0.9, seed=8).stream(index) for index in range(64)]
    assert len({stream.seed for stream in (*streams, *rivals)}) == 128
    assert {(stream.temperature, stream.top_p) for stream in streams} == {(0.7, 0.9)}
    assert all(0 <= stream.seed < 1 << 63 for stream in streams)


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("seeds", [(7, 7), (7, 8)], ids=["siblings", "neighbouring seeds"])
def test_the_streams_of_answers_are_independent(seeds: tuple[int, int], lag: int) -> None:
    """Pairs of numbers of two streams fill a grid evenly: chi squared with 63 degrees of freedom, p = 1e-4 each."""
    positions = 6400
    for first, second in ((0, 1), (1, 2), (3, 17), (62, 63)):
        one, other = Sampler(seed=seeds[0]).stream(first), Sampler(seed=seeds[1]).stream(second)
        cells = Counter(
            (int(one.uniform(position) * 8), int(other.uniform(position + lag) * 8)) for position in range(positions)
        )
        expected = positions / 64
        chi_squared = sum((cells[x, y] - expected) ** 2 / expected for x in range(8) for y in range(8))
        assert 25 < chi_squared < 114


def test_the_first_tokens_of_many_answers_follow_the_probabilities() -> None:
    """Across the answers to one prompt at one position, as along one answer."""
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    samplers = [Sampler(1.0, seed=11).stream(index) for index in range(3000)]
    counts = Counter(sample(probabilities.log().expand(3000, 3), samplers, [40] * 3000))
    for token, probability in enumerate(probabilities.tolist()):
        assert abs(counts[token] / 3000 - probability) < 0.035


def test_samples_follow_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    counts = Counter(
        sample(probabilities.log()[None], [Sampler(1.0, seed=5)], [position])[0] for position in range(4000)
    )
    for token, probability in enumerate(probabilities.tolist()):
        assert abs(counts[token] / 4000 - probability) < 0.03


def test_top_p_never_leaves_the_smallest_set_that_reaches_it() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    chosen = {sample(logits, [Sampler(1.0, 0.7, seed=3)], [position])[0] for position in range(500)}
    assert chosen == {0, 1}


def test_a_top_p_of_0_is_the_most_probable_token_alone() -> None:
    command = Generate("id", "acme", "tenant:acme", prompt="x", sampling=Sampling(temperature=2.0, top_p=0.0, seed=7))
    log = GenerationLog(("acme", "id"), Ledger())
    [sampler] = prepare(command, log, EchoTokenizer(), context_length=64, vocabulary_size=260).request.samplers
    logits = torch.tensor([[1.0, 1.2, 1.1]])
    assert {sample(logits, [sampler], [position])[0] for position in range(50)} == {1}


def test_top_p_of_a_flat_distribution_looks_beyond_the_first_candidates() -> None:
    logits = torch.zeros(1, 5000)
    chosen = {sample(logits, [Sampler(1.0, 0.9, seed=3)], [position])[0] for position in range(800)}
    assert len(chosen) > 600


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    logits = torch.tensor([[1.0, 2.0, 1.5]])
    assert sample(logits, [Sampler(1e-9, 1.0, seed=1)], [0]) == [1]


def test_masked_tokens_are_never_chosen() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0]])
    chosen = {sample(logits, [Sampler(5.0, 1.0, seed=2)], [position])[0] for position in range(200)}
    assert chosen == {1, 3}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_numbers_fail_their_row_alone(bad: float) -> None:
    logits = torch.tensor([[0.0, 1.0], [bad, 0.0], [2.0, 1.0]])
    assert sample(logits, [Sampler(), Sampler(1.0), Sampler()], [0, 0, 0]) == [1, None, 0]


@pytest.mark.parametrize(("temperature", "top_p"), [(-1, 1), (float("nan"), 1), (1, 0), (1, 1.1)])
def test_parameters_out_of_range_are_refused(temperature: float, top_p: float) -> None:
    with pytest.raises(ValueError):
        Sampler(temperature, top_p)


@pytest.mark.parametrize("parameters", [{"top_k": -1}, {"min_p": -0.1}, {"min_p": 1.1}, {"min_p": float("nan")}])
def test_top_k_and_min_p_out_of_range_are_refused(parameters: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(parameters))):
        Sampler(1.0, **parameters)


def drawn(**parameters: float) -> set[int | None]:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    return {sample(logits, [Sampler(1.0, seed=3, **parameters)], [position])[0] for position in range(300)}


def test_top_k_draws_from_the_most_probable_tokens_alone() -> None:
    assert [len(drawn(top_k=count)) for count in (0, 1, 2, 3, 4, 10**12)] == [4, 1, 2, 3, 4, 4]
    assert drawn(top_k=2) == {0, 1}


def test_min_p_draws_from_tokens_that_are_probable_beside_the_first() -> None:
    assert [drawn(min_p=share) for share in (0.0, 0.3, 0.6, 1.0)] == [{0, 1, 2, 3}, {0, 1, 2}, {0, 1}, {0}]


def test_top_p_is_a_share_of_what_top_k_leaves() -> None:
    assert drawn(top_p=0.5) == {0, 1}
    assert drawn(top_p=0.5, top_k=2) == {0}


def test_equal_tokens_are_ranked_by_their_ids() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0]])
    assert sample(logits, [Sampler()], [0]) == [1]
    assert {sample(logits, [Sampler(1.0, seed=1, top_k=2)], [position])[0] for position in range(100)} == {1, 2}


def test_a_token_is_drawn_in_the_order_of_the_ids_whatever_top_p_leaves() -> None:
    """The greater the random number, the greater the id."""
    logits = torch.tensor([[0.2, 0.05, 0.3, 0.45]]).log()
    sampler = Sampler(1.0, 0.9, seed=9)
    by_number = sorted((sampler.uniform(position), position) for position in range(200))
    tokens = [sample(logits, [sampler], [position])[0] for _, position in by_number]
    assert tokens == sorted(tokens)
    assert set(tokens) == {0, 2, 3}


def test_numbers_for_kernels_are_theirs_and_absent_where_nobody_has_them() -> None:
    assert set(sampling_arrays([Sampler(), Sampler(1.0)], [0, 1])) == {"uniforms", "temperatures"}
    samplers = [Sampler(1e300, 0.5), Sampler(0.5, top_k=10**12), Sampler(1.0, min_p=0.25), Sampler()]
    arrays = sampling_arrays(samplers, [3, 4, 5, 6])
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "uniforms": "float64", "temperatures": "float32", "top_p": "float32", "top_k": "int32", "min_p": "float32",
    }  # fmt: skip
    assert arrays["uniforms"].tolist() == [*(s.uniform(3 + row) for row, s in enumerate(samplers[:3])), 0]
    assert all(array.shape == (4,) and np.isfinite(array).all() for array in arrays.values())
    assert arrays["top_k"].tolist() == [0, 2**31 - 1, 0, 0]
