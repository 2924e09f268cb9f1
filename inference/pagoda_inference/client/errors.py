"""What can go wrong between a caller and an engine."""

from __future__ import annotations

from pagoda_inference.protocol import Error


class EngineUnavailable(Exception):
    """The engine cannot be reached, is loading its model, or went away. Trying again later may help."""


class EngineRefused(Exception):
    """The engine answered, and will not do it. ``error`` says why and what to do."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error
