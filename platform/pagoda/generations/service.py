"""Begin a generation: its row, and the command its recorder sends to an engine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta

import msgspec
from django.utils import timezone

from pagoda.engines import connections
from pagoda.generations import lease
from pagoda.generations.models import Generation
from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey, Tenant, User
from pagoda_inference.protocol import ChatMessage, Generate, RequestClass, Sampling


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Generation.request holds while the generation is in progress.

    keep_text: whoever records it stores what the engine says. Not of calls, whose caller alone gets the answer.
    """

    scope: str
    sampling: Sampling = Sampling()
    messages: tuple[ChatMessage, ...] = ()
    request_class: RequestClass = "interactive"
    continue_final: bool = False
    keep_text: bool = True


def create(
    *,
    tenant: Tenant,
    messages: Sequence[ChatMessage],
    generation_id: uuid.UUID | None = None,
    owner: str = "",
    purpose: str = Generation.Purpose.CHAT,
    sampling: Sampling | None = None,
    user: User | None = None,
    api_key: ApiKey | None = None,
    lineage: str = "",
    model: str = "",
    request_class: RequestClass = "interactive",
    continue_final: bool = False,
) -> Generation:
    """Write the generation inside the caller's transaction and the tenant's scope.

    generation_id: of whoever holds something for it already.
    owner: the recorder that will be started with it after the commit (``Recorder.owner``). Without one, the lease has
    run out from the start: the next web process that sweeps records it, within a second.
    """
    now = timezone.now()
    request = Request(
        scope=tenant.scope_for(user.pk if user else None),
        sampling=sampling or Sampling(),
        messages=tuple(messages),
        request_class=request_class,
        continue_final=continue_final,
    )
    return Generation.objects.create(
        pk=generation_id or new_id(),
        tenant=tenant,
        purpose=purpose,
        user=user,
        api_key=api_key,
        lineage=lineage,
        engine=connections.engine_for(lineage or str(uuid.uuid4())),
        model=model,
        request=msgspec.to_builtins(request),
        lease_owner=owner,
        lease_expires=now + timedelta(seconds=lease.LEASE_S) if owner else now,
    )


def command(generation: Generation) -> Generate:
    """What begins the generation in the engine; sent twice, it attaches."""
    request = msgspec.convert(generation.request, Request)
    return Generate(
        id=str(generation.pk),
        account=generation.account,
        scope=request.scope,
        messages=request.messages,
        sampling=request.sampling,
        lineage=generation.lineage,
        request_class=request.request_class,
        on_disconnect="keep",
        continue_final=request.continue_final,
    )
