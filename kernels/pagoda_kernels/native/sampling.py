"""Native sampling as a Python function on CPU tensors of float32 and bfloat16."""

from __future__ import annotations

import ctypes

import torch

from pagoda_kernels import layer_reference
from pagoda_kernels.native.arguments import FORMATS, INT, POINTER, SamplingArguments, function


class NativeSampling:
    """One call draws the tokens of all rows, in torch's number of threads, without sorting them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._sample = function(library.pagoda_sample, [INT, POINTER])

    def sample(
        self,
        logits: torch.Tensor,
        uniforms: torch.Tensor,
        temperatures: torch.Tensor,
        *,
        top_k: torch.Tensor | None = None,
        top_p: torch.Tensor | None = None,
        min_p: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As layer_reference.sample; number formats other than float32 and bfloat16 are left to it.

        logits: [N, V], whose rows may lie apart, or be one row shown N times. Weights are float64 like the reference's,
        each to about 1e-15 of itself, and so are sums: tokens differ only where a random number or a bound falls within
        about 1e-13 of a boundary. A row's token depends neither on the rows beside it nor on the number of threads.
        """
        if logits.dtype not in FORMATS:
            return layer_reference.sample(logits, uniforms, temperatures, top_k=top_k, top_p=top_p, min_p=min_p)
        rows, size = logits.shape
        logits = logits if logits.stride(1) == 1 else logits.contiguous()
        numbers = [
            _plain(uniforms, torch.float64),
            _plain(temperatures, torch.float32),
            _plain(top_k, torch.int32),
            _plain(top_p, torch.float32),
            _plain(min_p, torch.float32),
        ]
        tokens = torch.empty(rows, dtype=torch.int64)
        arguments = SamplingArguments(
            logits.data_ptr(),
            *[None if number is None else number.data_ptr() for number in numbers],
            tokens.data_ptr(),
            logits.stride(0),
            rows,
            size,
            torch.get_num_threads(),
        )
        self._sample(FORMATS[logits.dtype], ctypes.byref(arguments))
        return tokens


def _plain(numbers: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    return None if numbers is None else numbers.to(dtype).contiguous()
