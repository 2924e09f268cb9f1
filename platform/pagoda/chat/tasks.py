"""Work of the worker: titles and retention."""

from __future__ import annotations

import uuid
from datetime import timedelta

from celery import shared_task
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from pagoda.chat import retention, titles
from pagoda.chat.models import Conversation, Message
from pagoda.generations import service
from pagoda.generations.models import Generation
from pagoda.tenants.models import Scope, Tenant
from pagoda.tenants.scoping import tenant_scope

UNTITLED_AFTER = timedelta(minutes=2)
UNTITLED_WITHIN = timedelta(days=2)


@shared_task(name="chat.title_conversation")
def title_conversation(tenant_id: str, conversation_id: str) -> bool:
    """Ask for a title, once: the generation is recorded by a web process, and the title set when it settles.

    A web process is where the hint to open tabs can come from, without Redis too. The worker needs no engine for this.
    False when there is nothing to do, and for a conversation whose key is not good for it any more.
    """
    tenant = Tenant.objects.filter(pk=tenant_id, is_active=True).first()
    if tenant is None:
        return False
    with tenant_scope(tenant.pk), transaction.atomic():
        # The lock makes a task that is delivered twice ask once.
        conversation = (
            Conversation.objects.select_for_update(of=("self",))
            .filter(pk=conversation_id, title="", deleted__isnull=True)
            .first()
        )
        if conversation is None or _is_asked(conversation_id) or not _may_ask(conversation):
            return False
        question = titles.first_question(conversation)
        if not question:
            return False
        service.create(
            tenant=tenant,
            purpose=Generation.Purpose.TITLE,
            messages=titles.prompt(question),
            sampling=titles.SAMPLING,
            user=conversation.owner,
            api_key=conversation.api_key,
            lineage=str(conversation.pk),
            request_class="batch",
        )
        return True


@shared_task(name="chat.title_untitled")
def title_untitled() -> int:
    """Ask for the titles whose task was lost (a broker that was down, a worker that was killed). Returns how many."""
    now = timezone.now()
    complete = Message.across_tenants.filter(role=Message.Role.ASSISTANT, state=Message.State.COMPLETE)
    ended = Q(api_key__revoked__isnull=False) | Q(api_key__expires__lte=now) | Q(tenant__is_active=False)
    untitled = Conversation.across_tenants.exclude(ended).filter(
        title="",
        deleted__isnull=True,
        updated__lt=now - UNTITLED_AFTER,
        updated__gt=now - UNTITLED_WITHIN,
        pk__in=complete.values("conversation_id"),
    )
    found = list(untitled.values_list("tenant_id", "pk")[:200])
    return sum(title_conversation(str(tenant_id), str(pk)) for tenant_id, pk in found)


@shared_task(name="chat.apply_retention")
def apply_retention() -> int:
    """Erase deleted conversations, and those older than their tenant keeps them. Returns how many."""
    erased = 0
    for tenant_id, days in Tenant.objects.values_list("pk", "retention_days"):
        with tenant_scope(tenant_id):
            erased += retention.apply(days)
    return erased


def _may_ask(conversation: Conversation) -> bool:
    key = conversation.api_key
    return key is None or (key.is_usable and key.allows(Scope.CHAT))


def _is_asked(conversation_id: str | uuid.UUID) -> bool:
    asked = Generation.objects.filter(lineage=str(conversation_id), purpose=Generation.Purpose.TITLE)
    return asked.exists()
