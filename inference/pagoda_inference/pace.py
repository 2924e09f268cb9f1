"""How long steps take, learnt as they run, and what the next one may therefore take on."""

from __future__ import annotations

import numpy as np

from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from pagoda_inference.scheduling.step import Step

FORGETTING = 0.98
"""Weight of what was learnt before one more step: about 50 steps are remembered."""
FIRST_STEPS = 3
_UNCERTAIN = 1e3


class Pace:
    """Recursive least squares of a step's seconds over (1, sequences that get a token, prompt tokens).

    target_s: most that a step should take; 0: no matter. On a GPU steps are far below it and nothing is limited.
    """

    def __init__(self, target_s: float) -> None:
        self._target_s = target_s
        self._steps = 0
        self._weights = np.zeros(3)
        self._covariance = np.eye(3) * _UNCERTAIN

    def limits(self) -> StepLimits:
        """For the next step."""
        if self._target_s <= 0 or self._steps < FIRST_STEPS:
            return UNLIMITED
        base, row, token = (max(0.0, float(weight)) for weight in self._weights)
        return StepLimits(self._target_s, base, row, token)

    def learn(self, step: Step, seconds: float) -> None:
        """A step took so long."""
        if self._target_s <= 0:
            return
        rows = sum(1 for chunk in step.chunks if chunk.sampled)
        tokens = sum(chunk.count for chunk in step.chunks) - rows
        self._update(np.array([1.0, rows, max(0, tokens)]), seconds)

    def _update(self, features: np.ndarray, seconds: float) -> None:
        # An outlier (the machine did something else) must not throw away what was learnt.
        if self._steps > FIRST_STEPS:
            seconds = min(seconds, 3 * max(float(features @ self._weights), 1e-4))
        gain = self._covariance @ features
        gain /= FORGETTING + features @ gain
        self._weights = self._weights + gain * (seconds - features @ self._weights)
        self._covariance = (self._covariance - np.outer(gain, features @ self._covariance)) / FORGETTING
        trace = float(np.trace(self._covariance))
        if trace > 3 * _UNCERTAIN:  # steps that are all alike teach nothing: do not let uncertainty run away
            self._covariance *= 3 * _UNCERTAIN / trace
        self._steps += 1
