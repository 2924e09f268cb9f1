"""The layers' kernels equal the reference over their options."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda_kernels import layer_reference
from pagoda_kernels.triton_layers.gates import gated_activation
from pagoda_kernels.triton_layers.normalisation import rms_norm
from pagoda_kernels.triton_layers.rotary import rotate
from tests.kernels.interpreted import interpreted
from tests.kernels.traffic import TensorTraffic, measured

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
"""One or two units in the last place: the interpreter cuts to bfloat16, a GPU rounds."""

dtypes = st.sampled_from(list(TOLERANCE))


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.dtype == theirs.dtype
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=tolerance, atol=tolerance)


@settings(max_examples=20)
@given(
    rows=st.integers(0, 4),
    size=st.sampled_from([1, 16, 576, 2304]),
    dtype=dtypes,
    summed=st.booleans(),
    unit_offset=st.booleans(),
    strided=st.booleans(),
)
def test_rms_norm(rows, size, dtype, summed, unit_offset, strided) -> None:
    torch.manual_seed(size)
    inputs = torch.randn(rows, size + 3).to(dtype)[:, :size] if strided else torch.randn(rows, size).to(dtype)
    weight = torch.randn(size).to(dtype)
    residual = torch.randn(rows, size).to(dtype) if summed else None
    stream = residual.clone() if summed else None
    expected = layer_reference.rms_norm(inputs, weight, 1e-6, residual=stream, unit_offset=unit_offset)
    ours = interpreted(rms_norm)(inputs, weight, 1e-6, residual=residual, unit_offset=unit_offset)
    assert_close(ours, expected)
    if summed:
        assert_close(residual, stream)


def test_rms_norm_keeps_a_row_of_infinities_to_itself_and_refuses_what_is_too_wide() -> None:
    inputs = torch.randn(3, 64)
    clean = interpreted(rms_norm)(inputs, torch.ones(64), 1e-6)
    inputs[1, 5] = torch.inf
    ours = interpreted(rms_norm)(inputs, torch.ones(64), 1e-6)
    assert ours[1].isnan().any()
    assert torch.equal(ours[[0, 2]], clean[[0, 2]])
    with pytest.raises(ValueError, match="wider than"):
        rms_norm(torch.zeros(1, 20000), torch.ones(20000), 1e-6)


@settings(max_examples=20)
@given(
    tokens=st.integers(0, 3),
    heads=st.sampled_from([(1, 1), (6, 2), (24, 8)]),
    sizes=st.sampled_from([(16, 8), (80, 16), (96, 48), (256, 128), (64, 1)]),
    dtype=dtypes,
    interleaved=st.booleans(),
    strided=st.booleans(),
)
def test_rotate(tokens, heads, sizes, dtype, interleaved, strided) -> None:
    """sizes: of a head, and its pairs that are turned."""
    torch.manual_seed(sum(sizes))
    head_size, pairs = sizes
    step = torch.randn(tokens, sum(heads), head_size).to(dtype)
    query, key = step.split(heads, dim=1)
    angles = torch.randn(tokens, pairs) * 10
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    if strided:  # every other one, as transformers gives those of interleaved pairs
        cosine, sine = (part.repeat_interleave(2, dim=1)[:, ::2] for part in (cosine, sine))
    else:
        query, key = query.contiguous(), key.contiguous()
    expected = query.clone(), key.clone()
    layer_reference.rotate(*expected, cosine, sine, interleaved=interleaved)
    interpreted(rotate)(query, key, cosine, sine, interleaved=interleaved)
    assert_close(query, expected[0])
    assert_close(key, expected[1])
    assert torch.equal(query[..., 2 * pairs :], expected[0][..., 2 * pairs :])


@settings(max_examples=15)
@given(
    rows=st.integers(0, 3),
    size=st.sampled_from([1, 21, 1024, 1537]),
    dtype=dtypes,
    activation=st.sampled_from(["silu", "gelu_tanh"]),
)
def test_gated_activation(rows, size, dtype, activation) -> None:
    torch.manual_seed(size)
    gate_up = (torch.randn(rows, 2 * size) * 8).to(dtype)
    assert_close(
        interpreted(gated_activation)(gate_up, activation), layer_reference.gated_activation(gate_up, activation)
    )


def test_gates_that_are_far_out_are_open_or_shut() -> None:
    gate_up = torch.tensor([[-1e30, -90.0, 0.0, 90.0, 1e10], [2.0] * 5]).T.contiguous()
    for activation in ("silu", "gelu_tanh"):
        ours = interpreted(gated_activation)(gate_up, activation).flatten()
        assert ours.tolist() == pytest.approx([0.0, 0.0, 0.0, 180.0, 2e10], abs=1e-30)


@pytest.mark.parametrize("implementation", [gated_activation, layer_reference.gated_activation])
def test_an_activation_that_is_not_known_is_refused(implementation) -> None:
    with pytest.raises(ValueError, match="not relu"):
        implementation(torch.zeros(1, 4), "relu")


def moved(traffic: dict[str, TensorTraffic], *names: str) -> int:
    return sum(traffic[name].loaded.moved + traffic[name].stored.moved for name in names)


def test_the_layers_move_what_they_read_and_write_once() -> None:
    """Rows and heads once each; a weight is read by every row's program, and counts once: a cache has it."""
    rows = torch.randn(4, 2048).bfloat16()
    weight, residual = torch.ones(2048).bfloat16(), rows.clone()
    traffic = measured(rms_norm, rows, weight, 1e-6, residual=residual)
    assert moved(traffic, "inputs", "residual", "result") <= 1.05 * 4 * rows.nbytes
    assert traffic["weight"].loaded.distinct == weight.nbytes

    traffic = measured(gated_activation, rows)
    assert moved(traffic, "gate_up", "result") <= 1.05 * 1.5 * rows.nbytes

    for interleaved in (False, True):
        query, key = torch.randn(3, 32, 128).bfloat16(), torch.randn(3, 8, 128).bfloat16()
        cosine, sine = torch.randn(3, 64), torch.randn(3, 64)
        traffic = measured(rotate, query, key, cosine, sine, interleaved=interleaved)
        least = 2 * (query.nbytes + key.nbytes) + cosine.nbytes + sine.nbytes
        assert moved(traffic, "query", "key", "cosine", "sine") <= 1.05 * least
