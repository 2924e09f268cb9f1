"""One tenant's or one key's limits beside its meter: is there room for what is asked?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pagoda.tenants.models import Limits
from pagoda.usage import meters
from pagoda.usage.models import Meter
from pagoda.usage.window import Kind, Window

LimitKind = Literal["requests", "tokens", "concurrent", "budget"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a generation may come to. max_output_tokens: of each answer; None: whatever there is room for.

    prompt_tokens: never less than the engine will count. context_left: tokens that the model's context has room for
    behind the prompt. answers: sequences that are written, beams included.
    """

    prompt_tokens: int
    max_output_tokens: int | None
    answers: int = 1
    context_left: int = 0

    @property
    def minute_tokens(self) -> int:
        """What counts against a minute before the answer is known: one without a bound counts when it is there."""
        return self.prompt_tokens + self.answers * (self.max_output_tokens or 0)


@dataclass(frozen=True, slots=True)
class Rate:
    """One limit per minute. reset_s: seconds until nothing counts against it any more."""

    limit: int
    remaining: int
    reset_s: float


class LimitReached(Exception):
    """A limit has no room for the generation: nothing was held.

    message: one sentence with the numbers. retry_after_s: when it is worth another try; None: never, as it is.
    limit, used: of whatever is limited, what is held counted as used. of: whose limit it is.
    """

    def __init__(
        self, kind: LimitKind, message: str, retry_after_s: float | None, limit: int, used: int, of: str = "tenant"
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.used = used
        self.of = of


class Desk:
    """One subject's limits beside its meter."""

    def __init__(self, of: str, limits: Limits, meter: Meter, now: datetime) -> None:
        self.of = of
        self.limits = limits
        self.meter = meter
        self.now = now
        self.ms = milliseconds(now)
        self.window = Window(meter.minute, self.ms)

    @property
    def budget_left(self) -> int | None:
        if self.limits.monthly_tokens is None:
            return None
        return max(0, self.limits.monthly_tokens - self.meter.used - self.meter.held)

    def check_rates(self, *asked: Asked) -> None:
        """Generations at a time, requests and tokens per minute, of all that is asked at once. Raises LimitReached."""
        at_once, running = self.limits.concurrent_generations, self.meter.running
        if at_once is not None and running + len(asked) > at_once:
            text = f"{running} of at most {at_once} generations of this {self.of} are in progress"
            if len(asked) > at_once:
                text = f"This asks for {len(asked)} generations at a time; this {self.of} may have {at_once}."
                raise LimitReached("concurrent", text, None, at_once, running, self.of)
            text += "." if len(asked) == 1 else f"; this asks for {len(asked)} more."
            raise LimitReached("concurrent", text, 1.0, at_once, running, self.of)
        self._check_minute("requests", self.limits.requests_per_minute, len(asked))
        self._check_minute("tokens", self.limits.tokens_per_minute, sum(each.minute_tokens for each in asked))

    def check_possible(self, tokens: int) -> None:
        """Raises LimitReached where a month's whole budget has not so many tokens."""
        budget = self.limits.monthly_tokens
        if budget is not None and tokens > budget:
            text = f"This needs up to {tokens} tokens; this {self.of}'s budget is {budget} a month."
            raise LimitReached("budget", text, None, budget, self.meter.used + self.meter.held, self.of)

    def check_budget(self, tokens: int) -> None:
        """Tokens per month. Raises LimitReached."""
        left = self.budget_left
        if left is None or tokens <= left:
            return
        budget = self.limits.monthly_tokens
        assert budget is not None
        text = f"This {self.of}'s budget of {budget} tokens a month has {left} left; this needs up to {tokens}."
        wait = (meters.end_of_month(self.now) - self.now).total_seconds() if tokens <= budget else None
        raise LimitReached("budget", text, wait, budget, self.meter.used + self.meter.held, self.of)

    def take(self, tokens: int, minute_tokens: int) -> None:
        self.window.add(self.ms, requests=1, tokens=minute_tokens)
        self.meter.minute = self.window.store()
        self.meter.running += 1
        self.meter.held += tokens

    def rate(self, kind: Kind) -> Rate | None:
        limit = self.limits.requests_per_minute if kind == "requests" else self.limits.tokens_per_minute
        if limit is None:
            return None
        return Rate(limit, max(0, limit - self.window.sum(kind)), self.window.wait_ms(kind, 0, self.ms) / 1000)

    def _check_minute(self, kind: Kind, limit: int | None, more: int) -> None:
        if limit is None:
            return
        used = self.window.sum(kind)
        if used + more <= limit:
            return
        if more > limit:
            text = f"This needs up to {more} {kind}; this {self.of} may have {limit} a minute."
            raise LimitReached(kind, text, None, limit, used, self.of)
        text = f"This {self.of} may have {limit} {kind} a minute: {used} are used, this needs {more}."
        wait_s = self.window.wait_ms(kind, limit - more, self.ms) / 1000
        raise LimitReached(kind, text, wait_s, limit, used, self.of)


def milliseconds(time: datetime) -> int:
    """Since 1970, as windows count."""
    return int(time.timestamp() * 1000)
