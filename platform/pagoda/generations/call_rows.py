"""The rows of calls: held and written before they begin, and their leases while they run.

Synchronous; ``calls`` has them done in the threads for short database work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from django.db import transaction
from django.utils import timezone

from pagoda.generations import lease
from pagoda.generations.key_uses import Use, still_good, use_of
from pagoda.generations.models import Generation
from pagoda.generations.service import Request
from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import admission
from pagoda_inference.protocol import Generate, ModelInfo, RequestClass, Sampling


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt, as tokens, and what is wanted of it."""

    prompt: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Order:
    """Where and for whom asks are run. address: an engine of PAGODA_ENGINES, which serves ``model``."""

    key: ApiKey
    address: str
    model: ModelInfo
    purpose: str = Generation.Purpose.API
    request_class: RequestClass = "api"

    @property
    def use(self) -> Use:
        """What its key has to be good for, as long as it is carried out."""
        return use_of(self.key.pk, self.purpose)


def asked_of(order: Order, ask: Ask) -> admission.Asked:
    """What an ask may use at most, as limits count it."""
    room = order.model.context_length - len(ask.prompt)
    most = ask.sampling.max_tokens
    return admission.Asked(
        prompt_tokens=len(ask.prompt),
        max_output_tokens=None if most is None else min(most, room),
        answers=max(ask.sampling.n, ask.sampling.beam_width),
        context_left=room,
    )


def write(order: Order, asks: Sequence[Ask], owner: str) -> list[tuple[Generate, admission.RateState]]:
    """Hold what each ask may use and write its row, in one transaction: what begins it, and the limits as they stand.

    owner: who holds their leases. Raises admission.LimitReached.
    """
    key, now = order.key, timezone.now()
    scope = key.tenant.scope_for(None)
    request = msgspec.to_builtins(Request(scope=scope, request_class=order.request_class, keep_text=False))
    written = []
    asked = [asked_of(order, ask) for ask in asks]
    with tenant_scope(key.tenant_id), transaction.atomic():
        if len(asks) > 1:
            admission.check_together(key, asked, now=now)
        for ask, most in zip(asks, asked, strict=True):
            generation_id = new_id()
            hold = admission.reserve(key, most, generation_id=generation_id, now=now)
            Generation.objects.create(
                id=generation_id,
                tenant=key.tenant,
                api_key=key,
                purpose=order.purpose,
                engine=order.address,
                model=order.model.id,
                request=request,
                state=Generation.State.STREAMING,
                lease_owner=owner,
                lease_expires=lease.expiry(),
            )
            command = Generate(
                id=str(generation_id),
                account=str(key.tenant_id),
                scope=scope,
                prompt_token_ids=ask.prompt,
                sampling=msgspec.structs.replace(ask.sampling, max_tokens=hold.max_output_tokens),
                request_class=order.request_class,
                on_disconnect="cancel",
            )
            written.append((command, hold.rates))
    return written


def renew(ids: Sequence[str], uses: set[Use], owner: str) -> set[Use]:
    """Renew leases; returns for which of the uses their keys are still good."""
    held = Generation.across_tenants.filter(pk__in=ids, lease_owner=owner, finished__isnull=True)
    held.update(lease_expires=lease.expiry())
    return still_good(uses)
