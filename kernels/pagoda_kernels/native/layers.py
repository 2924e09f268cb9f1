"""The native layers as Python functions on CPU tensors of float32 and bfloat16."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from pagoda_kernels.native.arguments import FLOAT, FORMATS, INT, INT64, POINTER, LayerArguments, function
from pagoda_kernels.native.memory import WeightMemory
from pagoda_kernels.native.quantization import QuantizedWeight


class NativeLayers:
    """Linear layers with prepacked weights and what lies between them, in torch's number of threads.

    Tensors are not checked for where they lie: CPU only.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pack = function(library.pagoda_pack, [INT, POINTER, POINTER, INT64, INT64, INT])
        self._linear = function(library.pagoda_linear, [INT, POINTER, INT64, *[POINTER] * 3, *[INT64] * 3, INT])
        self._quantized_linear = function(
            library.pagoda_quantized_linear, [INT, INT, POINTER, INT64, *[POINTER] * 3, *[INT64] * 3, INT]
        )
        self._rms_norm = function(library.pagoda_rms_norm, [INT, *[POINTER] * 3, INT64, INT64, FLOAT, INT])
        self._rotate = function(library.pagoda_rotate, [INT, *[POINTER] * 3, *[INT64] * 5])
        self._silu_multiply = function(library.pagoda_silu_multiply, [INT, POINTER, POINTER, INT64, INT64, INT])
        self._decoder_layer = function(library.pagoda_decoder_layer, [INT, POINTER])
        library.pagoda_panel.restype = library.pagoda_vector.restype = INT64
        self.panel = int(library.pagoda_panel())
        """Output columns of a packed weight are rounded up to a multiple of this."""
        self.vector = int(library.pagoda_vector())
        """The same of a packed weight of 4 or 8 bits."""
        self._memory = WeightMemory()

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """A weight [columns, inner] in the order that ``linear`` reads: [panels, inner, panel], with room for pairs."""
        columns, inner = weight.shape
        weight = weight.detach().contiguous()
        packed = self._memory.empty((-(-columns // self.panel), inner + inner % 2, self.panel), weight.dtype)
        self._pack(FORMATS[weight.dtype], weight.data_ptr(), packed.data_ptr(), columns, inner, torch.get_num_threads())
        return packed

    def linear(
        self, inputs: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, columns: int
    ) -> torch.Tensor:
        """inputs [..., inner] times a packed weight of ``columns`` output columns, plus bias [columns]."""
        return self._product(self._linear, (), inputs.shape[-1], inputs, packed, bias, columns)

    def pack_quantized(self, weight: QuantizedWeight) -> torch.Tensor:
        """A weight of 4 or 8 bits in the order that ``quantized_linear`` reads: uint8 [panels, groups, bytes]."""
        packed = weight.pack(self.vector)
        return self._memory.empty(tuple(packed.shape), packed.dtype).copy_(packed)

    def quantized_linear(
        self, inputs: torch.Tensor, packed: torch.Tensor, bits: int, bias: torch.Tensor | None, columns: int
    ) -> torch.Tensor:
        """As ``linear`` with a weight of ``bits`` bits: inputs are rounded to 8 bits in groups of 32 on the way in."""
        return self._product(self._quantized_linear, (bits,), inputs.shape[-1], inputs, packed, bias, columns)

    @staticmethod
    def _product(
        product: Callable[..., None],
        kind: tuple[int, ...],
        inner: int,
        inputs: torch.Tensor,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        columns: int,
    ) -> torch.Tensor:
        """kind: what ``product`` has to know of the weight besides."""
        rows = inputs.reshape(-1, inner)
        output = inputs.new_empty(*inputs.shape[:-1], columns)
        product(
            FORMATS[inputs.dtype],
            *kind,
            rows.data_ptr(),
            rows.stride(0),
            packed.data_ptr(),
            None if bias is None else bias.data_ptr(),
            output.data_ptr(),
            rows.shape[0],
            columns,
            inner,
            torch.get_num_threads(),
        )
        return output

    def rms_norm(self, inputs: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Root mean square normalisation of the last dimension, as in llama. ``inputs`` is contiguous."""
        output = torch.empty_like(inputs)
        size = inputs.shape[-1]
        self._rms_norm(
            FORMATS[inputs.dtype],
            inputs.data_ptr(),
            weight.data_ptr(),
            output.data_ptr(),
            inputs.numel() // size,
            size,
            epsilon,
            torch.get_num_threads(),
        )
        return output

    def rotate(self, heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
        """Rotary embedding in place: heads [T, H, D] (last dimension contiguous), cosine and sine [T, D]."""
        self._rotate(
            FORMATS[heads.dtype],
            heads.data_ptr(),
            cosine.data_ptr(),
            sine.data_ptr(),
            *heads.shape,
            *heads.stride()[:2],
        )

    def silu_multiply(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [..., 2 N], contiguous: silu of the first half times the second -> [..., N]."""
        size = gate_up.shape[-1] // 2
        output = gate_up.new_empty(*gate_up.shape[:-1], size)
        self._silu_multiply(
            FORMATS[gate_up.dtype],
            gate_up.data_ptr(),
            output.data_ptr(),
            output.numel() // size,
            size,
            torch.get_num_threads(),
        )
        return output

    def decoder_layer(self, dtype: torch.dtype, arguments: LayerArguments) -> None:
        """A whole layer, see layer.h. The tensors that ``arguments`` points to are the caller's to keep."""
        self._decoder_layer(FORMATS[dtype], ctypes.byref(arguments))
