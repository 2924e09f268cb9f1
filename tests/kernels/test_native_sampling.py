"""Native sampling draws what the reference draws from the same numbers, whatever is beside a row."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagoda_kernels import layer_reference
from pagoda_kernels.native.library import NativeLibrary

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def uniform_numbers(count: int) -> torch.Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def agree(native: NativeLibrary, *arguments: torch.Tensor, **parameters: torch.Tensor) -> list[int]:
    """The tokens, which are the reference's."""
    ours = native.sample(*arguments, **parameters)
    assert ours.dtype == torch.int64
    assert ours.tolist() == layer_reference.sample(*arguments, **parameters).tolist()
    return ours.tolist()


rows_of_parameters = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.3, 0.8, 1.0, 1.7, 1e-6, 1e-38, 1e30]),  # temperature
        st.sampled_from([0, 1, 3, 40, 300, 10**6]),  # top_k
        st.sampled_from([1.0, 0.95, 0.5, 1e-3, 1e-30]),  # top_p
        st.sampled_from([0.0, 0.05, 0.5, 1.0]),  # min_p
        st.floats(0, 1, exclude_max=True),
    ),
    min_size=1,
    max_size=4,
)


@given(
    rows=rows_of_parameters,
    size=st.sampled_from([1, 2, 97, 255, 256, 257, 1024, 5000, 20011]),
    dtype=st.sampled_from(DTYPES),
    spread=st.sampled_from([0.0, 0.1, 3.0, 10.0, 1000.0]),
    given_names=st.sets(st.sampled_from(["top_k", "top_p", "min_p"])),
    levels=st.sampled_from([None, None, 2]),
    masked=st.sampled_from([0.0, 0.1, 0.99]),
    seed=st.integers(0, 9999),
)
def test_the_same_numbers_draw_the_same_tokens(
    native, rows, size, dtype, spread, given_names, levels, masked, seed
) -> None:
    """levels: of a standard deviation of a row's logits where many are equal."""
    torch.manual_seed(seed)
    logits = torch.randn(len(rows), size + 3)
    logits = ((logits * levels).round() / levels if levels else logits) * spread
    logits = logits.masked_fill(torch.rand_like(logits) < masked, -torch.inf)
    logits[:, 0] = logits[:, 0].clamp(min=-spread)
    temperatures, top_k, top_p, min_p, _ = (torch.tensor(column) for column in zip(*rows, strict=True))
    # Numbers that lie at no boundary: weights and bounds of equal logits are round.
    uniforms = torch.tensor([row[-1] for row in rows], dtype=torch.float64) * (1 - 1e-9) + 3.14159e-10
    parameters = {"top_k": top_k.int(), "top_p": top_p.float(), "min_p": min_p.float()}
    parameters = {name: parameters[name] for name in given_names}
    agree(native, logits.to(dtype)[:, :size], uniforms, temperatures.float(), **parameters)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [0.1, 2.0, 6.0])
def test_many_rows_of_a_real_vocabulary(native: NativeLibrary, dtype: torch.dtype, spread: float) -> None:
    torch.manual_seed(int(spread * 10))
    logits, uniforms = (torch.randn(24, 49152) * spread).to(dtype), torch.rand(24, dtype=torch.float64)
    temperatures = torch.tensor([0.0, 0.4, 0.8, 1.0, 1.5, 3.0] * 4)
    top_p = torch.tensor([1.0, 0.95, 0.9, 0.5] * 6)
    agree(native, logits, uniforms, temperatures)
    agree(native, logits, uniforms, temperatures, top_p=top_p)
    agree(native, logits, uniforms, temperatures, top_k=torch.tensor([0, 20, 1000] * 8).int(), top_p=top_p)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", [0, 300, 999])
def test_a_row_without_numbers_is_answered_alone(native: NativeLibrary, dtype: torch.dtype, place: int) -> None:
    logits = torch.randn(5, 1000)
    logits[0, place] = torch.nan
    logits[1] = -torch.inf
    logits[2, place] = torch.inf
    logits[3, place] = 40.0
    for temperature in (0.0, 1.0):
        for parameters in ({}, {"top_p": torch.full((5,), 0.9)}, {"top_k": torch.full((5,), 7).int()}):
            tokens = agree(
                native,
                logits.to(dtype),
                torch.full((5,), 0.5, dtype=torch.float64),
                torch.full((5,), temperature),
                **parameters,
            )
            assert tokens[:4] == [-1, -1, -1, place]


def test_greedy_takes_the_lowest_id_among_equals(native: NativeLibrary) -> None:
    logits = torch.zeros(3, 9000)
    logits[0, [8500, 4500, 300]] = 5.0
    logits[1, [8999, 8998]] = 5.0
    logits[2] = -logits[2]  # 0 and -0 are equal
    logits[2, 5] = 0.0
    assert agree(native, logits, torch.zeros(3, dtype=torch.float64), torch.zeros(3)) == [300, 8998, 0]


def test_equals_at_the_boundary_are_kept_from_the_lowest_id(native: NativeLibrary) -> None:
    """Of 6,000 equal tokens top-k keeps the first 100, and top-p the first tenth, though one is written as -0."""
    logits, uniforms, ones = torch.zeros(8, 6000), torch.arange(8, dtype=torch.float64) / 8, torch.ones(8)
    logits[:, 17] = -0.0
    of_100 = agree(native, logits, uniforms, ones, top_k=torch.full((8,), 100).int())
    assert of_100 == [int(100 * number) for number in uniforms]
    agree(native, logits, uniforms, ones, top_p=torch.full((8,), 0.1))
    agree(native, logits, uniforms, ones, top_k=torch.full((8,), 100).int(), top_p=torch.full((8,), 0.3))


@pytest.mark.parametrize("below", [1, 3, 10])
def test_equals_below_others_are_cut_where_they_are_due(native: NativeLibrary, below: int) -> None:
    logits, uniforms = torch.full((40, 3000), -2.0), uniform_numbers(40)
    logits[:, 100 : 100 + below] = 3.0
    logits[:, 1500:] = -9.0
    tokens = agree(native, logits, uniforms, torch.ones(40), top_k=torch.full((40,), below + 5).int())
    assert set(tokens) <= {*range(5), *range(100, 100 + below)}
    agree(native, logits, uniforms, torch.ones(40), top_p=torch.full((40,), 0.77))


def test_the_first_of_the_ranking_is_kept_by_every_filter(native: NativeLibrary) -> None:
    torch.manual_seed(3)
    logits, uniforms, hot = torch.randn(20, 700), uniform_numbers(20), torch.full((20,), 1.3)
    greatest = logits.argmax(dim=1).tolist()
    assert agree(native, logits, uniforms, hot, top_k=torch.ones(20).int()) == greatest
    assert agree(native, logits, uniforms, hot, top_p=torch.full((20,), 1e-30)) == greatest
    assert agree(native, logits, uniforms, hot, min_p=torch.ones(20)) == greatest
    assert agree(native, logits, uniforms, torch.full((20,), 1e-30)) == greatest


def test_the_last_token_is_drawn_where_the_number_is_almost_one(native: NativeLibrary) -> None:
    almost_one = torch.tensor([math.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert agree(native, torch.zeros(1, 5000), almost_one, torch.ones(1)) == [4999]
    assert agree(native, torch.zeros(1, 5000), almost_one, torch.ones(1), top_k=torch.tensor([4999]).int()) == [4998]


@pytest.mark.parametrize("masked", [3, 256, 600])
def test_a_number_of_zero_draws_the_first_token_that_is_not_masked(native: NativeLibrary, masked: int) -> None:
    logits = torch.zeros(1, 1000)
    logits[:, :masked] = -torch.inf
    for parameters in ({}, {"top_p": torch.tensor([0.5])}, {"min_p": torch.tensor([0.1])}):
        arguments = logits, torch.zeros(1, dtype=torch.float64), torch.ones(1)
        assert agree(native, *arguments, **parameters) == [masked]


def test_draws_follow_the_distribution(native: NativeLibrary) -> None:
    logits = torch.tensor([1.0, 3.0, -torch.inf, 2.0, 2.5]).expand(1000, -1)
    tokens = native.sample(logits, uniform_numbers(1000), torch.full((1000,), 0.7))
    expected = (logits[0] / 0.7).softmax(0) * 1000
    assert (tokens.bincount(minlength=5) - expected).abs().max() <= 1


def mixed_batch() -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    torch.manual_seed(2)
    logits, uniforms = torch.randn(12, 3000) * 3, torch.rand(12, dtype=torch.float64)
    temperatures = torch.tensor([0.0, 1.0, 0.5, 1.0, 2.0, 1.0] * 2)
    parameters = {
        "top_k": torch.tensor([0, 0, 0, 50, 50, 2000] * 2).int(),
        "top_p": torch.tensor([1.0, 1.0, 0.9, 0.5] * 3),
        "min_p": torch.tensor([0.0, 0.0, 0.1] * 4),
    }
    return (logits, uniforms, temperatures), parameters


def test_a_row_does_not_depend_on_its_batch(native: NativeLibrary) -> None:
    arguments, parameters = mixed_batch()
    together = native.sample(*arguments, **parameters).tolist()
    alone = [
        native.sample(*(a[row : row + 1] for a in arguments), **{n: v[row : row + 1] for n, v in parameters.items()})
        for row in range(12)
    ]
    assert torch.cat(alone).tolist() == together


def test_a_row_does_not_depend_on_the_number_of_threads(native: NativeLibrary, one_thread: None) -> None:
    arguments, parameters = mixed_batch()
    alone = native.sample(*arguments, **parameters).tolist()
    for threads in (2, 3, 16):
        torch.set_num_threads(threads)
        assert native.sample(*arguments, **parameters).tolist() == alone


def test_other_layouts_and_number_formats_are_taken(native: NativeLibrary) -> None:
    torch.manual_seed(4)
    arguments = uniform_numbers(6), torch.ones(6)
    logits = torch.randn(6, 400)
    tokens = agree(native, logits, *arguments)
    assert agree(native, logits.T.contiguous().T, *arguments) == tokens
    assert agree(native, logits.repeat(1, 2)[:, :400], *arguments) == tokens
    assert len(set(agree(native, logits[:1].expand(6, -1), *arguments))) > 1
    agree(native, logits.half(), *arguments)
    assert agree(native, logits[:0], arguments[0][:0], arguments[1][:0]) == []
