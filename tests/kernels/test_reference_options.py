"""The reference's options that no other implementation on a CPU has, against attention written out in float64."""

from __future__ import annotations

import torch

from pagoda_kernels import reference
from tests.kernels.paged_case import PagedCase


def test_alibi_weighs_a_token_by_how_far_back_it_lies() -> None:
    case = PagedCase.make([(3, 20), (1, 7)])
    slopes = torch.tensor([2.0**-exponent for exponent in range(1, 7)])
    options = {"scaling": 0.3, "softcap": 2.0, "sliding_window": 9}
    output = reference.paged_attention(
        case.query, case.key_pool, case.value_pool, case.batch, alibi_slopes=slopes, **options
    )
    row = 0
    for keys, values, (length, context) in zip(case.keys, case.values, [(3, 20), (1, 7)], strict=True):
        for position in range(context - length, context):
            seen = range(max(0, position - 8), position + 1)
            for head in range(6):
                scores = torch.stack([0.3 * keys[p, head // 3].double() @ case.query[row, head].double() for p in seen])
                scores = 2 * torch.tanh(scores / 2)
                scores += slopes[head].double() * torch.tensor([p - position for p in seen]).double()
                expected = scores.softmax(0) @ values[seen.start : seen.stop, head // 3].double()
                torch.testing.assert_close(output[row, head].double(), expected, rtol=1e-5, atol=1e-6)
            row += 1


def test_scales_give_float8_pools_their_numbers_back() -> None:
    case = PagedCase.make([(2, 20), (1, 7)])
    scales = {"key_scale": torch.tensor([0.02, 0.1]), "value_scale": torch.tensor([0.3, 0.05])}
    stored = [
        (pool / scale[:, None, None]).to(torch.float8_e4m3fn)
        for pool, scale in zip((case.key_pool, case.value_pool), scales.values(), strict=True)
    ]
    exact = [pool.float() * scale[:, None, None] for pool, scale in zip(stored, scales.values(), strict=True)]
    output = reference.paged_attention(case.query, *stored, case.batch, scaling=0.3, **scales)
    expected = reference.paged_attention(case.query, *exact, case.batch, scaling=0.3)
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)
    assert float((output - case.plain(scaling=0.3)).abs().max()) < 0.1


def test_what_a_table_names_behind_a_context_need_not_exist() -> None:
    case = PagedCase.make([(1, 20), (1, 40)])
    arguments = (case.query, case.key_pool, case.value_pool)
    expected = reference.paged_attention(*arguments, case.batch, scaling=0.3)
    case.batch.block_tables[0, 2:] = 2**31 - 1
    assert torch.equal(reference.paged_attention(*arguments, case.batch, scaling=0.3), expected)
