"""What the settings say about speculation, made ready for a loaded model."""

from __future__ import annotations

import logging

from pagoda_inference import logs
from pagoda_inference.model.backend import Backend
from pagoda_inference.pace import Pace
from pagoda_inference.rates import Rates, measure_rates
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.settings import Settings
from pagoda_inference.speculation.costs import measure_costs
from pagoda_inference.speculation.draft_model import SpeculativeBackend
from pagoda_inference.speculation.drafter import Drafter
from pagoda_inference.speculation.prompt_lookup import PromptLookup
from pagoda_inference.speculation.speculation import Speculation

logger = logging.getLogger(__name__)


def make_speculation(
    settings: Settings, backend: Backend, scheduler: Scheduler, rates: Rates, pace: Pace
) -> Speculation | None:
    """None where it is off. Measures what a draft costs, in blocks that nobody has yet."""
    if settings.speculate == "off":
        return None
    drafter: Drafter
    if isinstance(backend, SpeculativeBackend):
        drafter, costs = backend, measure_costs(backend.target, rates, measure_rates(backend.draft))
    else:
        drafter, costs = PromptLookup(), measure_costs(backend, rates)
    logs.event(
        logger,
        "speculation",
        kind=settings.speculate,
        draft_tokens=settings.draft_tokens,
        token_ms=round(1e3 * costs.worth_s(1), 3),
        draft_ms=round(1e3 * costs.cost_s(1), 3),
    )
    return Speculation(
        drafter,
        costs,
        most=settings.draft_tokens,
        token_budget=scheduler.token_budget,
        limits=pace.limits,
        may_decode=scheduler.may_decode,
    )
