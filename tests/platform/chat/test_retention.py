"""What is deleted is erased after a day, what is old when its tenant says so; the ledger stays."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from pagoda.chat import tasks
from pagoda.chat.models import Conversation, Message, Submission
from pagoda.generations.models import Generation
from pagoda.usage.models import UsageRecord

NOW = timezone.now()


def conversation(
    party: Any, *, age: timedelta, deleted: timedelta | None = None, running: bool = False
) -> Conversation:
    """A question and its answer."""
    row = Conversation.across_tenants.create(
        tenant=party.tenant,
        owner=party.member,
        updated=NOW - age,
        deleted=None if deleted is None else NOW - deleted,
    )
    generation = Generation.across_tenants.create(
        tenant=party.tenant, lineage=str(row.pk), engine="unix:/x", finished=None if running else NOW, text="secret"
    )
    question = Message.across_tenants.create(tenant=party.tenant, conversation=row, role="user", content="secret")
    answer = Message.across_tenants.create(
        tenant=party.tenant, conversation=row, parent=question, role="assistant", generation=generation
    )
    Submission.across_tenants.create(
        tenant=party.tenant,
        sender=f"user:{party.member.pk}",
        client_id=uuid.uuid4().hex,
        conversation=row,
        user_message=question,
        assistant_message=answer,
        generation=generation,
    )
    UsageRecord.across_tenants.create(
        tenant=party.tenant,
        generation_id=generation.pk,
        model="echo",
        purpose="chat",
        prompt_tokens=1,
        cached_tokens=0,
        output_tokens=1,
    )
    return row


@pytest.mark.django_db
def test_old_and_deleted_conversations_are_erased_with_all_their_texts(acme: Any, rival: Any) -> None:
    acme.tenant.retention_days = 30
    acme.tenant.save()
    old = conversation(acme, age=timedelta(days=31))
    deleted = conversation(acme, age=timedelta(days=2), deleted=timedelta(hours=25))
    just_deleted = conversation(acme, age=timedelta(days=2), deleted=timedelta(hours=1))
    recent = conversation(acme, age=timedelta(days=29))
    answering = conversation(acme, age=timedelta(days=31), running=True)
    kept_forever = conversation(rival, age=timedelta(days=4000))
    deleted_by_rival = conversation(rival, age=timedelta(days=2), deleted=timedelta(days=2))
    records = UsageRecord.across_tenants.count()

    assert tasks.apply_retention() == 3

    left = {just_deleted.pk, recent.pk, answering.pk, kept_forever.pk}
    gone = {str(each.pk) for each in (old, deleted, deleted_by_rival)}
    assert set(Conversation.across_tenants.values_list("pk", flat=True)) == left
    assert set(Message.across_tenants.values_list("conversation_id", flat=True)) == left
    assert Submission.across_tenants.count() == 4
    assert not Generation.across_tenants.filter(lineage__in=gone).exists()
    assert UsageRecord.across_tenants.count() == records
    assert tasks.apply_retention() == 0
