"""Rows as docs/websocket.md shows them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pagoda.chat.models import Conversation, Message
from pagoda.generations.models import Generation
from pagoda.tenants.models import Tenant

Json = dict[str, Any]


def time_as_json(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tenant_as_json(tenant: Tenant) -> Json:
    return {"id": str(tenant.pk), "slug": tenant.slug, "name": tenant.name}


def conversation_as_json(conversation: Conversation) -> Json:
    return {
        "id": str(conversation.pk),
        "title": conversation.title,
        "created": time_as_json(conversation.created),
        "updated": time_as_json(conversation.updated),
    }


def utf16_length(text: str) -> int:
    """Length as JavaScript counts it: characters beyond the basic plane count twice."""
    return len(text.encode("utf-16-le")) // 2


def message_as_json(message: Message, generation: Generation | None) -> Json:
    """``generation`` is the message's latest; its text is needed while the message is streaming."""
    shown: Json = {
        "id": str(message.pk),
        "conversation_id": str(message.conversation_id),
        "parent_id": str(message.parent_id) if message.parent_id else None,
        "role": message.role,
        "content": message.content,
        "created": time_as_json(message.created),
        "state": message.state,
        "generation": None,
        "finish_reason": None,
        "usage": None,
        "error": None,
    }
    if generation is not None:
        offset = utf16_length(message.content[: message.offset])
        shown["generation"] = {"id": str(generation.pk), "seq": generation.seq, "offset": offset}
        if message.state == Message.State.STREAMING:
            shown["content"] += generation.text
        else:
            shown |= {
                "finish_reason": generation.finish_reason or None,
                "usage": generation.usage(),
                "error": generation.error,
            }
    return shown


def messages_as_json(messages: Iterable[Message]) -> list[Json]:
    """All messages of a conversation, with one query for their generations and one for texts in progress."""
    rows = list(messages)
    ids = [row.generation_id for row in rows if row.generation_id]
    generations = {
        each.pk: each for each in Generation.objects.filter(pk__in=ids).defer("text", "token_ids", "request")
    }
    streaming = [row.generation_id for row in rows if row.state == Message.State.STREAMING]
    generations |= {each.pk: each for each in Generation.objects.filter(pk__in=streaming).defer("token_ids", "request")}
    return [message_as_json(row, generations.get(row.generation_id)) for row in rows]
