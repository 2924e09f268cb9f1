"""Weights of 4 or 8 bits: a model's linear layers rounded, so that native products keep them as integers.

Rounding comes first, in place, to numbers that the integers say exactly. So the model's own code computes what the
native products have to, and a load compares the two as it does with any other weights.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from pagoda_inference.model.errors import ModelLoadError
from pagoda_kernels import Kernels
from pagoda_kernels.native.quantization import quantize

BITS = {"q4": 4, "int8": 8}
"""By the value of PAGODA_ENGINE_DTYPE. Other numbers are then of the dtype that ``auto`` takes."""
TOLERANCE = 1e-1
"""Greatest relative error of a logits row (2-norm) once inputs are rounded to 8 bits on the way into each product."""
_HEAD_BITS = 8


def bits_of(model: Any, bits: int) -> dict[nn.Module, int]:
    """The bits of each linear layer: ``bits``, but 8 for the head, which chooses from the whole vocabulary."""
    if not bits:
        return {}
    head = model.get_output_embeddings()
    return {module: _HEAD_BITS if module is head else bits for module in model.modules() if type(module) is nn.Linear}


@torch.inference_mode()
def round_weights(model: Any, kernels: Kernels, bits: int) -> None:
    """Round the linear layers of ``model`` in place to groups of 32 integers of ``bits`` (4 or 8).

    Embeddings stay as they are, also where the head shares them. Raises ModelLoadError where no native kernel would
    multiply such weights, where there are none, or where they cannot be rounded.
    """
    name = next(name for name, value in BITS.items() if value == bits)
    if kernels.native is None:
        raise ModelLoadError(
            f"Weights of {bits} bits ({name}) need the native kernels, which run on a CPU and are built with a C++ "
            "compiler: install g++, or choose another dtype."
        )
    if not kernels.native.supports(model.dtype):
        raise ModelLoadError(f"Weights of {bits} bits ({name}) go with float32 or bfloat16, not {model.dtype}.")
    layers = bits_of(model, bits)
    if not layers.keys() - {model.get_output_embeddings()}:
        raise ModelLoadError(
            f"{type(model).__name__} has no linear layers to keep in {bits} bits: choose another dtype."
        )
    for module, own_bits in layers.items():
        try:
            weight = cast("torch.Tensor", module.weight)
            rounded = quantize(weight, own_bits).dequantize()
        except ValueError as error:
            raise ModelLoadError(f"The weights of this model cannot be kept in {bits} bits: {error}.") from error
        module.weight = nn.Parameter(rounded.to(weight.dtype), requires_grad=False)
