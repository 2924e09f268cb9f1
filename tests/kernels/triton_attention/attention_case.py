"""Paged attention problems as GPUs have them: keys laid out for Triton, fp8 pools, tables with garbage behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from pagoda_kernels import reference
from pagoda_kernels.triton_attention import launch
from tests.kernels.interpreted import interpreted
from tests.kernels.paged_case import PagedCase

TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 5e-6},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1.6e-2},
}
"""Of attention over numbers of about 1: the result is rounded to the dtype, and so are weights before they are used."""

SOFTCAP_ERROR = 1e-6
"""How far a capped score may be off, as a share of the cap: the kernel takes the cap less a fraction of twice the cap,
each rounded in float32 (2**-24), where the reference takes the cap times a small number."""


@dataclass
class AttentionCase:
    case: PagedCase
    scales: dict[str, torch.Tensor]

    @classmethod
    def make(
        cls, lengths: Sequence[tuple[int, int]], *, float8: bool = False, slots_inside: bool = False, **shape: Any
    ) -> AttentionCase:
        """float8: pools in float8_e4m3fn with scales. slots_inside: a key's numbers lie a block apart, as on CPUs."""
        case = PagedCase.make(lengths, **shape)
        scales = {}
        if float8:
            for name, pool in (("key_scale", case.key_pool), ("value_scale", case.value_pool)):
                scale = torch.rand(pool.shape[1]) * 0.2 + 0.01
                stored = (pool.float() / scale[:, None, None]).to(torch.float8_e4m3fn)
                setattr(case, name.replace("scale", "pool"), stored)
                scales[name] = scale
        if not slots_inside:
            case.key_pool = case.key_pool.transpose(2, 3).contiguous().transpose(2, 3)
        self = cls(case, scales)
        self.spoil_tables()
        return self

    def spoil_tables(self) -> None:
        """Behind the blocks that a context needs, tables name blocks that do not exist."""
        batch = self.case.batch
        block_size = self.case.value_pool.shape[2]
        wide = torch.full((batch.block_tables.shape[0], batch.block_tables.shape[1] + 3), 2**31 - 1, dtype=torch.int32)
        wide[:, ::2] = -(2**31)
        for row, context in enumerate(batch.context_lengths.tolist()):
            needed = -(-context // block_size)
            wide[row, :needed] = batch.block_tables[row, :needed]
        batch.block_tables = wide

    def reference(self, **parameters: Any) -> torch.Tensor:
        case = self.case
        parameters = {"scaling": 0.3, **self.scales, **parameters}
        return reference.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, **parameters)

    def triton(self, architecture: int = 80, **parameters: Any) -> torch.Tensor:
        case = self.case
        parameters = {"scaling": 0.3, **self.scales, **parameters}
        return interpreted(attention_on)(
            architecture, case.query, case.key_pool, case.value_pool, case.batch, **parameters
        )

    def check(self, **parameters: Any) -> None:
        """That Triton's answer is the reference's, for the same ``parameters`` (``cut`` and ``architecture`` aside)."""
        output = self.triton(**parameters)
        expected = self.reference(
            **{name: value for name, value in parameters.items() if name not in ("cut", "architecture")}
        )
        assert output.dtype == expected.dtype
        tolerance = TOLERANCE[expected.dtype]
        atol = tolerance["atol"] + SOFTCAP_ERROR * (parameters.get("softcap") or 0.0)
        torch.testing.assert_close(output, expected, rtol=tolerance["rtol"], atol=atol)


def attention_on(architecture: int, *arguments: Any, **parameters: Any) -> torch.Tensor:
    """Paged attention as it is launched on a GPU of ``architecture`` (which decides who converts float8)."""
    with mock.patch.object(launch, "_device", return_value=(2, architecture)):
        return launch.paged_attention(*arguments, **parameters)
