"""Weights as integers of 4 or 8 bits: groups of 32 along the input, each with a scale and a minimum.

weight = scale * q + minimum, with q in 0 .. 2^bits - 1 and both factors in float16. Weights that have been of such a
kind before (GGUF's Q4_0, Q4_1, Q8_0 and our own) are found again exactly, up to the rounding of their number format.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

GROUP = 32
"""Neighbouring weights of an output column that share a scale and a minimum."""
BITS = (4, 8)


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """levels: uint8 [columns, groups, 32], scales and minimums: float16 [columns, groups]; inner: inputs, at most
    groups * 32 (what the last group has beyond them multiplies zeros)."""

    bits: int
    levels: torch.Tensor
    scales: torch.Tensor
    minimums: torch.Tensor
    inner: int

    def dequantize(self) -> torch.Tensor:
        """The weights as they count: float32 [columns, inner]."""
        weight = self.levels.float() * self.scales.float()[..., None] + self.minimums.float()[..., None]
        return weight.flatten(1)[:, : self.inner]

    def pack(self, vector: int) -> torch.Tensor:
        """For native products with vectors of ``vector`` columns (see quantized.h): uint8 [panels, groups, bytes]."""
        columns, groups = self.scales.shape
        panels = -(-columns // vector)

        def by_panel(values: torch.Tensor) -> torch.Tensor:
            filled = values.new_zeros(panels * vector, *values.shape[1:])
            filled[:columns] = values
            return filled.view(panels, vector, *values.shape[1:]).transpose(1, 2)  # [panels, groups, vector, ...]

        quads = by_panel(self.levels).reshape(panels, groups, vector, GROUP // 4, 4).transpose(2, 3)
        if self.bits == 4:
            low, high = quads.chunk(2, dim=2)
            quads = low | high << 4
        factors = (by_panel(self.scales).contiguous(), by_panel(self.minimums).contiguous())
        parts = [quads.reshape(panels, groups, -1), *(part.view(torch.uint8) for part in factors)]
        return torch.cat(parts, dim=-1).contiguous()


def quantize(weight: torch.Tensor, bits: int) -> QuantizedWeight:
    """``weight`` [columns, inner], finite, of any float format, in ``bits`` (4 or 8).

    Of the ways to lay the levels each group takes the one with the least squared error: from its least weight to its
    greatest, and symmetrically around zero. Weights of 8 bits are symmetric. Raises ValueError for weights that float16
    cannot scale: infinite ones, and groups that reach beyond 65504.
    """
    if bits not in BITS:
        raise ValueError(f"weights have 4 or 8 bits, not {bits}")
    columns, inner = weight.shape
    groups = -(-inner // GROUP)
    values = weight.detach().float()
    if groups * GROUP > inner:  # the last weight again: it changes neither end of its group
        values = torch.cat([values, values[:, -1:].expand(columns, groups * GROUP - inner)], dim=1)
    values = values.reshape(columns, groups, GROUP)
    least, greatest = values.amin(-1), values.amax(-1)
    extreme = torch.where(greatest > -least, greatest, least)
    if bits == 8:
        scale = extreme.abs() / 127
        best = _levels(values, scale.half(), (scale.half().float() * -128).half(), bits)[:3]
    else:
        steps = 2**bits - 1
        ends = _levels(values, ((greatest - least) / steps).half(), least.half(), bits)
        scale = (
            -extreme / 8
        ).half()  # the extreme is level 0, as in Q4_0: with 8 levels on its side and 7 on the other
        around = _levels(values, scale, (scale.float() * -8).half(), bits)
        better = around[3] < ends[3]
        best = (
            torch.where(better[..., None], around[0], ends[0]),
            torch.where(better, around[1], ends[1]),
            torch.where(better, around[2], ends[2]),
        )
    if not all(bool(part.isfinite().all()) for part in best[1:]):
        raise ValueError("weights that are not finite, or beyond float16, cannot be rounded to integers")
    return QuantizedWeight(bits, *best, inner)


def _levels(
    values: torch.Tensor, scales: torch.Tensor, minimums: torch.Tensor, bits: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(levels, scales, minimums, squared error by group) of ``values`` [columns, groups, 32]."""
    scale, minimum = scales.float()[..., None], minimums.float()[..., None]
    inverse = torch.where(scale == 0, 0.0, 1 / scale)
    levels = ((values - minimum) * inverse).round().clamp(0, 2**bits - 1)
    errors = (levels * scale + minimum - values).square().sum(-1)
    return levels.to(torch.uint8), scales, minimums, errors
