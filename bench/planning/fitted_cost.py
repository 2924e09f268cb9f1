"""A cost model fitted to the steps of a machine: seconds as a sum of what a step computes, each at its own rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.simulation.work import StepWork

Measured = tuple[StepWork, float]
"""A step and its seconds."""

FEWEST = 20


@dataclass(frozen=True)
class FittedCost:
    """Seconds for a step, for each sequence that gets a token, each prompt token, each token of KV read, and each
    (query, key) pair of a prompt's attention. None is below 0.
    """

    step_s: float
    row_s: float
    token_s: float
    context_s: float
    pair_s: float

    def seconds(self, work: StepWork) -> float:
        return float(np.dot(_terms(work), (self.step_s, self.row_s, self.token_s, self.context_s, self.pair_s)))


def fit(steps: Sequence[Measured]) -> FittedCost:
    """Least squares of the relative errors, so that short steps count as much as long ones; terms that would be below 0
    are left out. Raises ValueError for too few steps.
    """
    if len(steps) < FEWEST:
        raise ValueError(f"{len(steps)} steps are too few to fit a cost to: measure at least {FEWEST}")
    terms = np.array([_terms(work) for work, _ in steps])
    seconds = np.array([seconds for _, seconds in steps])
    relative = terms / seconds[:, None]
    kept = list(range(terms.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(relative[:, kept], np.ones(len(steps)), rcond=None)
        if (found >= 0).all():
            break
        kept.pop(int(np.argmin(found)))
    rates = np.zeros(terms.shape[1])
    rates[kept] = found
    return FittedCost(*(float(rate) for rate in rates))


def _terms(work: StepWork) -> tuple[float, ...]:
    return (1.0, work.rows + work.prompt_rows, work.prompt_tokens, work.context, work.prompt_pairs)
