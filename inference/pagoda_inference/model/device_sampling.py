"""Sampling where the logits are: the numbers of all rows go there in one copy, the tokens come back in another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from pagoda_inference.decoding.sampling import Sampler, sampling_arrays
from pagoda_inference.model.choosing import Tokens
from pagoda_inference.model.staging import Staging

_POLL_S = 20e-6


class DeviceSampling:
    """A Draw of ``sample``, with the signature of pagoda_kernels' layer_reference.

    check: called now and then while the tokens are waited for; raises where they will not come any more.
    """

    def __init__(
        self, device: torch.device, sample: Callable[..., torch.Tensor], check: Callable[[], None] | None = None
    ) -> None:
        self._device = device
        self._sample = sample
        self._check = check
        self._staging = Staging(device) if device.type == "cuda" else None

    def __call__(self, logits: torch.Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> Tokens:
        """On a GPU everything is queued, and nothing waits for it; elsewhere the tokens are there when this returns."""
        arrays = sampling_arrays(samplers, positions)
        if self._staging is None:
            here = self._sample(logits, **{name: torch.from_numpy(array) for name, array in arrays.items()})
            return lambda: _usable(here)
        tokens = self._sample(logits, **self._staging.put(arrays))
        host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        host.copy_(tokens, non_blocking=True)
        arrived = torch.cuda.current_stream(self._device).record_event()

        def wait() -> list[int | None]:
            self._wait(arrived)
            return _usable(host)

        return wait

    def _wait(self, event: torch.cuda.Event) -> None:
        if self._check is None:
            event.synchronize()
            return
        while not event.query():
            self._check()
            time.sleep(_POLL_S)


def _usable(tokens: torch.Tensor) -> list[int | None]:
    return [None if token < 0 else token for token in tokens.tolist()]
