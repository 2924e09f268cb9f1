"""Admission of a generation by the limits of its tenant and its key: held before it runs, settled after it.

Synchronous, under the tenant's scope and inside the caller's transaction, which also writes the generation: a hold
stands or falls with it. Whatever has no limit costs one query.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from django.db import transaction
from django.utils import timezone

from pagoda.tenants.models import ApiKey, Limits, Tenant
from pagoda.tenants.scoping import CrossTenantAccess, current_tenant_id
from pagoda.usage import meters
from pagoda.usage.desk import Asked, Desk, LimitReached, Rate, milliseconds
from pagoda.usage.models import Meter, OpenHold, TenantLimits
from pagoda.usage.window import Kind, Window


class Asker(Protocol):
    """Who asks: a member (without a key) or a key of a tenant."""

    @property
    def tenant(self) -> Tenant: ...

    @property
    def api_key(self) -> ApiKey | None: ...


@dataclass(frozen=True, slots=True)
class RateState:
    """The tighter of the tenant's and the key's limits; None: there is none."""

    requests: Rate | None = None
    tokens: Rate | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """What was held for a generation. max_output_tokens: what each of its answers may have at most."""

    generation_id: uuid.UUID
    max_output_tokens: int
    tokens: int = 0
    rates: RateState = field(default_factory=RateState)


def reserve(asker: Asker | ApiKey, asked: Asked, *, generation_id: uuid.UUID, now: datetime | None = None) -> Hold:
    """Hold what the generation may come to, against the limits of the tenant and of the key. Raises LimitReached.

    Of racing calls, none gets what another holds: each waits for the meters' rows.
    """
    now = now or timezone.now()
    limited = _limited(asker)
    if not limited:
        return Hold(generation_id, _most_output(asked, None))
    # No savepoint: two round trips less. What is raised inside would end the caller's transaction, so it is handed out.
    with transaction.atomic(savepoint=False):
        held = _hold(asker, limited, asked, generation_id, now)
    if isinstance(held, LimitReached):
        raise held
    return held


def _hold(
    asker: Asker | ApiKey,
    limited: Sequence[tuple[uuid.UUID, str, Limits]],
    asked: Asked,
    generation_id: uuid.UUID,
    now: datetime,
) -> Hold | LimitReached:
    """Check everything, then write."""
    locked = meters.lock([subject for subject, _, _ in limited], now, make=True)
    by_subject = {meter.subject: meter for meter in locked}
    desks = [Desk(of, limits, by_subject[subject], now) for subject, of, limits in limited]
    try:
        for desk in desks:
            desk.check_rates(asked)
        most = _most_output(asked, min((d.budget_left for d in desks if d.budget_left is not None), default=None))
        tokens = asked.prompt_tokens + asked.answers * most
        for desk in desks:
            desk.check_budget(tokens)
    except LimitReached as reached:
        return reached
    for desk in desks:
        desk.take(tokens, asked.minute_tokens)
    meters.save(locked)
    OpenHold.objects.create(
        generation_id=generation_id,
        tenant=_tenant(asker),
        api_key=_key(asker),
        tokens=tokens,
        minute_tokens=asked.minute_tokens,
        created=now,
    )
    return Hold(generation_id, most, tokens, _tightest(desks))


def settle(generation_id: uuid.UUID, prompt: int, cached: int, output: int, *, now: datetime | None = None) -> bool:
    """Count what the generation used, and give the rest of its hold back. False where it holds nothing (any more).

    ``ledger.enter`` calls it for every record. cached: a part of prompt, which counts like the rest of it.
    """
    return _close(generation_id, prompt + output, now or timezone.now())


def release(generation_id: uuid.UUID, *, now: datetime | None = None) -> bool:
    """Give the whole hold back: nothing was used, and the request does not count. False where it holds nothing."""
    return _close(generation_id, None, now or timezone.now())


def check_together(asker: Asker | ApiKey, asked: Sequence[Asked], *, now: datetime | None = None) -> None:
    """Whether generations that are asked for at once have room beside each other. Raises LimitReached.

    Holds nothing: each is to be reserved. Without it the first would hold what the last is refused for.
    """
    for desk in _desks(asker, now or timezone.now()):
        desk.check_rates(*asked)
        desk.check_possible(sum(each.prompt_tokens + each.answers * (each.max_output_tokens or 0) for each in asked))


def rate_state(asker: Asker | ApiKey, *, now: datetime | None = None) -> RateState:
    """The limits per minute as they stand. Two or three queries, none of which locks."""
    return _tightest(_desks(asker, now or timezone.now()))


def _desks(asker: Asker | ApiKey, now: datetime) -> list[Desk]:
    """Limits beside meters as they stand, which others may change at any time."""
    limited = _limited(asker)
    if not limited:
        return []
    stored = {meter.subject: meter for meter in Meter.objects.filter(subject__in=[each[0] for each in limited])}
    return [Desk(of, limits, stored.get(subject) or Meter(subject=subject), now) for subject, of, limits in limited]


def _limited(asker: Asker | ApiKey) -> list[tuple[uuid.UUID, str, Limits]]:
    """Whoever of the tenant and the key has a limit: the subject's id, what it is, its limits."""
    tenant, key = _tenant(asker), _key(asker)
    if tenant.pk != current_tenant_id():
        raise CrossTenantAccess("Limits are looked at in the scope of their own tenant.")
    own = TenantLimits.objects.filter(tenant_id=tenant.pk).first()
    candidates: list[tuple[uuid.UUID, str, Limits | None]] = [(tenant.pk, "tenant", own)]
    if key is not None:
        candidates.append((key.pk, "key", key))
    return [(subject, of, limits) for subject, of, limits in candidates if limits is not None and limits.is_limited]


def _tenant(asker: Asker | ApiKey) -> Tenant:
    return asker.tenant


def _key(asker: Asker | ApiKey) -> ApiKey | None:
    return asker if isinstance(asker, ApiKey) else asker.api_key


def _most_output(asked: Asked, budget_left: int | None) -> int:
    """Tokens that each answer may have: what was asked for, else what context and budget have room for."""
    if asked.max_output_tokens is not None:
        return asked.max_output_tokens
    if budget_left is None:
        return asked.context_left
    return min(asked.context_left, max(1, (budget_left - asked.prompt_tokens) // asked.answers))


def _close(generation_id: uuid.UUID, used: int | None, now: datetime) -> bool:
    """used: tokens; None: the request never ran."""
    with transaction.atomic(savepoint=False):
        hold = OpenHold.objects.filter(pk=generation_id).first()
        if hold is None:
            return False
        subjects = [hold.tenant_id, *([hold.api_key_id] if hold.api_key_id else [])]
        locked = meters.lock(subjects, now, besides=generation_id)
        # Deleted under the lock: of two that settle at once, one does.
        if not OpenHold.objects.filter(pk=generation_id).delete()[0]:
            return False
        for meter in locked:
            window = Window(meter.minute, milliseconds(now))
            difference = (used or 0) - hold.minute_tokens
            window.correct(milliseconds(hold.created), requests=-1 if used is None else 0, tokens=difference)
            meter.minute = window.store()
            meter.running = max(0, meter.running - 1)
            meter.held = max(0, meter.held - hold.tokens)
            meter.used += used or 0
        meters.save(locked)
        return True


def _tightest(desks: Sequence[Desk]) -> RateState:
    def tighter(kind: Kind) -> Rate | None:
        rates = [rate for desk in desks if (rate := desk.rate(kind)) is not None]
        return min(rates, key=lambda rate: rate.remaining, default=None)

    return RateState(tighter("requests"), tighter("tokens"))
