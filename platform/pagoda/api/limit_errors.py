"""Limits of keys and tenants as the API tells them: the error where one is reached, the headers where none is."""

from __future__ import annotations

from pagoda.api.errors import ApiError
from pagoda.usage.admission import LimitReached, Rate, RateState


def limit_reached(reached: LimitReached, rates: RateState | None = None) -> ApiError:
    """429: which limit, its numbers, and when to try again, if ever. rates: told in its headers."""
    code = "insufficient_quota" if reached.kind == "budget" else "rate_limit_exceeded"
    never = reached.retry_after_s is None
    headers = rate_headers(rates) if rates is not None else None
    return ApiError(code, reached.message, retry_after_s=reached.retry_after_s, hopeless=never, headers=headers)


def rate_headers(rates: RateState) -> dict[str, str]:
    """``x-ratelimit-…`` of the limits there are, as OpenAI's API has them."""
    headers: dict[str, str] = {}
    for kind, rate in (("requests", rates.requests), ("tokens", rates.tokens)):
        if rate is not None:
            headers |= _headers(kind, rate)
    return headers


def duration(seconds: float) -> str:
    """``250ms``, ``1s``, ``6m0s``, ``1h0m0s``."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _headers(kind: str, rate: Rate) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{kind}": str(rate.limit),
        f"x-ratelimit-remaining-{kind}": str(rate.remaining),
        f"x-ratelimit-reset-{kind}": duration(rate.reset_s),
    }
