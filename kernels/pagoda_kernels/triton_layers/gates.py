"""The gate of a feed-forward layer: SwiGLU and GeGLU (arXiv 2002.05202)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda_kernels.triton_attention.tiling import Budget

BUDGET = Budget(registers=40, shared_bytes=0)

TILE = 1024
"""Numbers of a row's output that a program computes."""


@triton.jit
def gated_activation_kernel(gate_up, output, size, input_stride, output_stride, GELU: tl.constexpr, TILE: tl.constexpr):
    """Grid: (rows, tiles of a row)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = columns < size
    gates = gate_up + row * input_stride + columns
    gate = tl.load(gates, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gates + size, mask=inside, other=0.0).to(tl.float32)
    bent = gate
    if GELU:  # x / 2 (1 + tanh z) is x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x**3)
        bent = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    opened = gate / (1.0 + tl.exp(-bent))
    tl.store(output + row * output_stride + columns, (opened * up).to(output.dtype.element_ty), mask=inside)


def gated_activation(gate_up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """As ``layer_reference.gated_activation``."""
    if activation not in ("silu", "gelu_tanh"):
        raise ValueError(f"activation silu or gelu_tanh, not {activation}")
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    gate_up = gate_up if gate_up.stride(1) == 1 else gate_up.contiguous()
    output = gate_up.new_empty(rows, size)
    if rows:
        gated_activation_kernel[(rows, triton.cdiv(size, TILE))](
            gate_up,
            output,
            size,
            gate_up.stride(0),
            output.stride(0),
            GELU=activation == "gelu_tanh",
            TILE=TILE,
        )
    return output
