"""Erasing conversations: their messages, and the texts of their generations. Usage stays in the ledger."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from pagoda.chat.models import Conversation
from pagoda.generations.models import Generation

UNDO = timedelta(hours=24)
"""How long a deleted conversation can still be brought back by an operator."""

BATCH = 100


def apply(retention_days: int | None) -> int:
    """Erase what is due in the tenant in scope. Returns the number of conversations.

    Conversations with an answer in progress wait for the next time.
    """
    now = timezone.now()
    due = Q(deleted__lt=now - UNDO)
    if retention_days is not None:
        due |= Q(updated__lt=now - timedelta(days=retention_days))
    erased = 0
    after = None
    while True:
        rows = Conversation.objects.filter(due).order_by("pk")
        ids = list((rows.filter(pk__gt=after) if after else rows).values_list("pk", flat=True)[:BATCH])
        if not ids:
            return erased
        after = ids[-1]
        erased += _erase(ids)


def _erase(ids: list) -> int:
    lineages = [str(each) for each in ids]
    with transaction.atomic():
        running = Generation.objects.filter(lineage__in=lineages, finished__isnull=True)
        busy = set(running.values_list("lineage", flat=True))
        idle = [each for each in ids if str(each) not in busy]
        Conversation.objects.filter(pk__in=idle).delete()
        Generation.objects.filter(lineage__in=[str(each) for each in idle]).delete()
        return len(idle)
