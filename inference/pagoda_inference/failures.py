"""A request failed in the engine: the log gets the reason; its caller what to do, and the id it is logged under."""

from __future__ import annotations

import logging

from pagoda_inference import logs
from pagoda_inference.decoding.grammar_error import GrammarError
from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.sequence import Request

logger = logging.getLogger(__name__)


def told(request: Request, error: BaseException) -> Error:
    """Log what failed a request; returns what its caller is told.

    A grammar that became too complex is the caller's to mend; anything else is not.
    """
    grammar = _grammar_error(error)
    reason = {} if grammar is None else {"reason": grammar.reason}
    logs.failure(logger, "generation_failed", error, id=request.id, account=request.account, **reason)
    if grammar is not None and grammar.too_complex:
        return Error(
            "invalid_request",
            f"the grammar cannot be followed any further: {grammar.reason}. Make it simpler, with fewer "
            f"alternatives or optional properties at one place (generation {request.id})",
        )
    return model_error(request)


def model_error(request: Request) -> Error:
    """Nothing is wrong with the request."""
    return Error(
        "model_error",
        f"the model failed on this request: try again, or ask an operator, who finds the reason in the engine's log "
        f"under the id {request.id}",
    )


def _grammar_error(error: BaseException) -> GrammarError | None:
    """Where it is one, or comes of one."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, GrammarError):
        found = found.__cause__
    return found
