"""List, open, rename and delete conversations of one identity. Synchronous, under the tenant's scope."""

from __future__ import annotations

import base64
import uuid
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from pagoda.chat.identity import Identity
from pagoda.chat.models import Conversation, Message, Submission
from pagoda.chat.objects import conversation_as_json, messages_as_json
from pagoda.chat.requests import RequestRefused
from pagoda.generations import purging


def owned(identity: Identity) -> QuerySet[Conversation]:
    """The identity's conversations that are not deleted."""
    return Conversation.objects.filter(identity.owns(), deleted__isnull=True)


def find(identity: Identity, conversation_id: uuid.UUID) -> Conversation:
    """Raises RequestRefused(not_found), for somebody else's conversation as well."""
    conversation = owned(identity).filter(pk=conversation_id).first()
    if conversation is None:
        raise RequestRefused("not_found", "No such conversation in this tenant.", "conversation_id")
    return conversation


def find_message(identity: Identity, message_id: uuid.UUID, field: str = "message_id") -> Message:
    """Raises RequestRefused(not_found)."""
    message = (
        Message.objects.filter(pk=message_id, conversation__in=owned(identity))
        .select_related("conversation", "parent")
        .first()
    )
    if message is None:
        raise RequestRefused("not_found", "No such message in this tenant.", field)
    return message


def message_of_generation(identity: Identity, generation_id: uuid.UUID) -> uuid.UUID:
    """The message that a generation writes. Raises RequestRefused(not_found)."""
    submission = Submission.objects.filter(generation_id=generation_id, conversation__in=owned(identity)).values_list(
        "assistant_message_id", flat=True
    )
    message_id = submission.first()
    if message_id is None:
        raise RequestRefused("not_found", "No such generation in this tenant.", "generation_id")
    return message_id


def page(identity: Identity, before: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Conversations, newest first, and the cursor of the next page (None: this was the last)."""
    rows = owned(identity).defer("system_text").order_by("-updated", "-pk")
    if before is not None:
        updated, last = _read_cursor(before)
        rows = rows.filter(Q(updated__lt=updated) | Q(updated=updated, pk__lt=last))
    found = list(rows[: limit + 1])
    more = found[limit - 1] if len(found) > limit else None
    return [conversation_as_json(each) for each in found[:limit]], _cursor(more) if more else None


def open_conversation(identity: Identity, conversation_id: uuid.UUID) -> dict[str, Any]:
    """The conversation and its whole tree of messages, oldest first."""
    conversation = find(identity, conversation_id)
    messages = messages_as_json(Message.objects.filter(conversation=conversation).defer("token_ids"))
    return {"conversation": conversation_as_json(conversation), "messages": messages}


def rename(identity: Identity, conversation_id: uuid.UUID, title: str) -> dict[str, Any]:
    """Give it a title of the member's own. Raises RequestRefused."""
    if not title.strip():
        raise RequestRefused("invalid", "A title has at least one character.", "title")
    conversation = find(identity, conversation_id)
    conversation.title = title.strip()
    conversation.save(update_fields=["title"])
    return conversation_as_json(conversation)


def delete(identity: Identity, conversation_id: uuid.UUID) -> list[uuid.UUID]:
    """Put it out of sight; the engines forget it, and retention erases it.

    Returns the generations in progress, which are to be stopped.
    """
    conversation = find(identity, conversation_id)
    with transaction.atomic():
        conversation.deleted = timezone.now()
        conversation.save(update_fields=["deleted"])
        purging.order(str(conversation.tenant_id), [str(conversation.pk)])
    streaming = Message.objects.filter(conversation=conversation, state=Message.State.STREAMING)
    return [each for each in streaming.values_list("generation_id", flat=True) if each is not None]


def _cursor(conversation: Conversation) -> str:
    return base64.urlsafe_b64encode(f"{conversation.updated.isoformat()} {conversation.pk}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, uuid.UUID]:
    try:
        updated, _, last = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return datetime.fromisoformat(updated), uuid.UUID(last)
    except ValueError:
        raise RequestRefused("invalid", "This is not a cursor that a page gave.", "before") from None
