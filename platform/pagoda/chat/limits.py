"""How much one member or API key may ask for at a time, and what its tenant's and its own limits hold."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pagoda.chat import context
from pagoda.chat.identity import Identity
from pagoda.chat.requests import RequestRefused
from pagoda.generations.models import Generation
from pagoda.usage import admission
from pagoda_inference.protocol import ChatMessage

ANSWERS_AT_ONCE = 16
"""Answers in progress per member or key. More would only wait in the engine's queue."""

STREAMS_PER_SOCKET = 32
"""Generations that one socket follows at a time."""


def check_may_ask(identity: Identity) -> None:
    """Raises RequestRefused(rate_limited). Uses the database, under the tenant's scope."""
    own = Generation.objects.filter(user=identity.user, api_key=identity.api_key, purpose=Generation.Purpose.CHAT)
    if own.filter(finished__isnull=True).count() >= ANSWERS_AT_ONCE:
        raise RequestRefused(
            "rate_limited", f"{ANSWERS_AT_ONCE} answers are in progress: wait for one or stop one.", retry_after_s=2.0
        )


def hold(
    identity: Identity,
    generation_id: uuid.UUID,
    messages: Sequence[ChatMessage],
    *,
    context_length: int,
    wanted: int | None,
    usual: int,
) -> int:
    """Hold what an answer may come to, in the caller's transaction; returns the tokens that it may have.

    context_length: the model's, in tokens. wanted: tokens that were asked for; None: ``usual``, or what is left of a
    budget. Raises RequestRefused: budget_used where the tokens of the month are, rate_limited for every other limit.
    """
    prompt = min(context.most_tokens(messages), context_length)
    asked = admission.Asked(prompt_tokens=prompt, max_output_tokens=wanted, context_left=usual)
    try:
        return admission.reserve(identity, asked, generation_id=generation_id).max_output_tokens
    except admission.LimitReached as reached:
        if reached.kind == "budget":
            # The next month is too far away to be told in seconds.
            raise RequestRefused("budget_used", reached.message) from None
        raise RequestRefused("rate_limited", reached.message, retry_after_s=reached.retry_after_s) from None
