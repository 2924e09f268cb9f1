"""How much one member or API key may ask for at a time."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from pagoda.chat.identity import Identity
from pagoda.chat.requests import RequestRefused
from pagoda.generations.models import Generation

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
    allowed = identity.api_key.requests_per_minute if identity.api_key else None
    if allowed:
        now = timezone.now()
        recent = Generation.objects.filter(api_key=identity.api_key, created__gt=now - timedelta(minutes=1))
        times = list(recent.order_by("-created").values_list("created", flat=True)[:allowed])
        if len(times) >= allowed:
            wait = (times[-1] + timedelta(minutes=1) - now).total_seconds()
            raise RequestRefused(
                "rate_limited", f"This key may ask {allowed} times a minute.", retry_after_s=round(max(wait, 0.1), 1)
            )
