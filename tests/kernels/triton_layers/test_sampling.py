"""The sampling kernel draws what the reference draws from the same numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda_kernels import layer_reference
from pagoda_kernels.triton_layers import sampling
from pagoda_kernels.triton_layers.sampling import sample
from tests.kernels.interpreted import interpreted
from tests.kernels.traffic import measured

Parameters = dict[str, torch.Tensor]


def both(logits: torch.Tensor, uniforms: torch.Tensor, temperatures: torch.Tensor, **parameters: torch.Tensor):
    ours = interpreted(sample)(logits, uniforms, temperatures, **parameters)
    return ours, layer_reference.sample(logits, uniforms, temperatures, **parameters)


def clearly(logits: torch.Tensor, uniforms: torch.Tensor, temperatures: torch.Tensor, **parameters: torch.Tensor):
    """Rows whose token stays the same when what float32 rounds, or loses, is off by a hundred thousandth."""
    expected = layer_reference.sample(logits, uniforms, temperatures, **parameters)
    clear = torch.ones(len(expected), dtype=torch.bool)
    for off in (-1e-5, 1e-5):
        moved = {name: value * (1 + off) if name in ("top_p", "min_p") else value for name, value in parameters.items()}
        for beside in ((uniforms + off).clamp(0, 1 - 1e-9), (uniforms - off).clamp(0, 1 - 1e-9)):
            clear &= layer_reference.sample(logits, beside, temperatures, **moved) == expected
    return clear


rows_of_parameters = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.3, 1.0, 1.7, 1e-6]),  # temperature
        st.sampled_from([0, 1, 3, 40, 10**6]),  # top_k
        st.sampled_from([1.0, 0.95, 0.5, 1e-3]),  # top_p
        st.sampled_from([0.0, 0.05, 0.5, 1.0]),  # min_p
        st.floats(0, 1, exclude_max=True),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=30)
@given(
    rows=rows_of_parameters,
    size=st.sampled_from([1, 2, 97, 1024, 5000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    spread=st.sampled_from([0.1, 3.0, 10.0]),
    given_names=st.sets(st.sampled_from(["top_k", "top_p", "min_p"])),
    levels=st.sampled_from([None, 4]),
    seed=st.integers(0, 999),
)
def test_the_same_numbers_draw_the_same_tokens(rows, size, dtype, spread, given_names, levels, seed) -> None:
    """levels: of a row's logits where many are equal."""
    torch.manual_seed(seed)
    logits = torch.randn(len(rows), size + 3) * spread
    if levels:
        logits = (logits * levels / spread).round() * spread / levels
    logits = logits.masked_fill(torch.rand_like(logits) < 0.1, -torch.inf)
    logits[:, 0] = logits[:, 0].clamp(min=-spread)
    logits = logits.to(dtype)[:, :size]
    temperatures, top_k, top_p, min_p, uniforms = (torch.tensor(column) for column in zip(*rows, strict=True))
    parameters = {"top_k": top_k.int(), "top_p": top_p.float(), "min_p": min_p.float()}
    parameters = {name: parameters[name] for name in given_names}
    arguments = logits, uniforms.double(), temperatures.float()
    ours, expected = both(*arguments, **parameters)
    clear = clearly(*arguments, **parameters)
    assert ours[clear].tolist() == expected[clear].tolist()
    assert logits.float().gather(1, ours[:, None]).isfinite().all()


def test_a_row_without_numbers_is_answered_alone() -> None:
    logits = torch.randn(5, 50)
    logits[0, 7] = torch.nan
    logits[1] = -torch.inf
    logits[2, 9] = torch.inf
    logits[3, 11] = 40.0
    for temperature in (0.0, 1.0):
        arguments = logits, torch.full((5,), 0.5, dtype=torch.float64), torch.full((5,), temperature)
        for parameters in ({}, {"top_p": torch.full((5,), 0.9)}):
            ours, expected = both(*arguments, **parameters)
            assert ours.tolist() == expected.tolist()
            assert ours[:4].tolist() == [-1, -1, -1, 11]


def test_greedy_takes_the_lowest_id_among_equals_also_across_tiles() -> None:
    logits = torch.zeros(2, 9000)
    logits[0, [8500, 4500, 300]] = 5.0
    logits[1, [8500, 4500]] = 5.0
    ours, expected = both(logits, torch.zeros(2, dtype=torch.float64), torch.zeros(2))
    assert ours.tolist() == expected.tolist() == [300, 4500]


def test_equals_at_the_boundary_are_kept_from_the_lowest_id() -> None:
    """Of 6,000 equal tokens top-k keeps the first 100, and top-p the first tenth."""
    logits, uniforms = torch.zeros(8, 6000), torch.arange(8, dtype=torch.float64) / 8
    ones = torch.ones(8)
    of_100, expected = both(logits, uniforms, ones, top_k=torch.full((8,), 100).int())
    assert of_100.tolist() == expected.tolist() == [int(100 * number) for number in uniforms]
    of_600, _ = both(logits, uniforms, ones, top_p=torch.full((8,), 0.1))
    assert of_600.tolist() == [int(600 * number + 1e-3) for number in uniforms]


def test_each_filter_leaves_out_what_is_drawn_without_it() -> None:
    torch.manual_seed(5)
    logits = torch.randn(1, 300).expand(8, -1)
    uniforms, ones = (torch.arange(8, dtype=torch.float64) + 0.5) / 8, torch.ones(8)

    def least_drawn(**parameters: torch.Tensor) -> float:
        return float(logits[0, interpreted(sample)(logits, uniforms, ones, **parameters)].min())

    free = least_drawn()
    assert least_drawn(top_k=torch.full((8,), 20).int()) > free
    assert least_drawn(top_p=torch.full((8,), 0.4)) > free
    assert least_drawn(min_p=torch.full((8,), 0.3)) > free


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([1.0, 3.0, -torch.inf, 2.0, 2.5]).expand(100, -1)
    uniforms = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    ours = interpreted(sample)(logits, uniforms, torch.full((100,), 0.7))
    expected = (logits[0] / 0.7).softmax(0) * 100
    assert (ours.bincount(minlength=5) - expected).abs().max() <= 1


def test_a_row_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(2)
    logits, uniforms = torch.randn(6, 3000) * 3, torch.rand(6, dtype=torch.float64)
    temperatures, top_p = torch.tensor([0.0, 1.0, 0.5, 1.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, 0.9, 0.5, 0.99, 0.1])
    together = interpreted(sample)(logits, uniforms, temperatures, top_p=top_p)
    for row in range(6):
        own = slice(row, row + 1)
        alone = interpreted(sample)(logits[own], uniforms[own], temperatures[own], top_p=top_p[own])
        assert alone.item() == together[row].item()


def few_collected(*arguments: torch.Tensor, **parameters: torch.Tensor) -> torch.Tensor:
    """With room for 64 candidates."""
    capacity, sampling.CAPACITY = sampling.CAPACITY, 64
    try:
        return sample(*arguments, **parameters)
    finally:
        sampling.CAPACITY = capacity


def test_more_candidates_than_there_is_room_for_are_sought_in_the_row() -> None:
    torch.manual_seed(3)
    arguments = torch.randn(4, 2500), torch.rand(4, dtype=torch.float64), torch.full((4,), 1.5)
    parameters = {"top_k": torch.tensor([500, 0, 2000, 0]).int(), "top_p": torch.tensor([1.0, 0.9, 0.99, 0.5])}
    ours = interpreted(few_collected)(*arguments, **parameters)
    assert clearly(*arguments, **parameters).all()
    assert ours.tolist() == layer_reference.sample(*arguments, **parameters).tolist()


def test_the_last_token_is_drawn_where_rounding_leaves_the_goal_unreached() -> None:
    logits = torch.zeros(1, 5000)
    almost_one = torch.tensor([math.nextafter(1.0, 0.0)], dtype=torch.float64)
    for parameters in ({}, {"top_k": torch.tensor([4999]).int()}):
        ours, expected = both(logits, almost_one, torch.ones(1), **parameters)
        assert ours.item() == expected.item() == (4998 if parameters else 4999)


@pytest.mark.parametrize(
    ("temperature", "parameters", "passes"),
    [
        (0.0, {"top_p": 0.9}, 1),
        (1.0, {}, 2),
        (1.0, {"min_p": 0.1}, 2),
        (1.0, {"top_k": 50}, 3),
        (1.0, {"top_p": 0.9}, 3),
        (1.0, {"top_k": 50, "top_p": 0.9, "min_p": 0.1}, 3),
    ],
)
def test_passes_over_the_logits(temperature: float, parameters: dict[str, float], passes: int) -> None:
    """The candidates' own are less than half a pass in all, though each step of a bisection goes through them."""
    torch.manual_seed(4)
    logits = torch.randn(2, 32000) * 4
    values = {name: torch.full((2,), value).to(torch.int32 if name == "top_k" else torch.float32)
              for name, value in parameters.items()}  # fmt: skip
    uniforms = torch.full((2,), 0.999999, dtype=torch.float64)
    traffic = measured(sample, logits, uniforms, torch.full((2,), temperature), **values)
    assert passes <= traffic["logits"].loaded.accessed / logits.nbytes < passes + 0.5
