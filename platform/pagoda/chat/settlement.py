"""A generation has settled: its message, or its conversation's title, becomes final in the same transaction."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import receiver
from django.utils import timezone

from pagoda.chat import hints, tasks, titles
from pagoda.chat.identity import group_of
from pagoda.chat.models import Conversation, Message
from pagoda.chat.objects import conversation_as_json
from pagoda.generations import purging
from pagoda.generations.models import Generation
from pagoda.generations.signals import generation_settled

OF_CONVERSATIONS = (Generation.Purpose.CHAT, Generation.Purpose.TITLE)


@receiver(generation_settled, dispatch_uid="chat.settlement")
def settle(generation: Generation, **_: Any) -> None:
    """For a conversation that was deleted meanwhile, the engines forget what this generation added to it."""
    if generation.purpose in OF_CONVERSATIONS and not _is_kept(generation.lineage):
        purging.order(generation.account, [generation.lineage])
        _forget_text(generation)
    if generation.purpose == Generation.Purpose.CHAT:
        _settle_message(generation)
    elif generation.purpose == Generation.Purpose.TITLE:
        _settle_title(generation)


def _is_kept(conversation_id: str) -> bool:
    return Conversation.objects.filter(pk=conversation_id, deleted__isnull=True).exists()


def _forget_text(generation: Generation) -> None:
    """Retention erases texts with their conversation: of one that was erased already, nothing would be."""
    if not Conversation.objects.filter(pk=generation.lineage).exists():
        generation.text, generation.token_ids = "", []
        generation.save(update_fields=["text", "token_ids"])


def _settle_message(generation: Generation) -> None:
    message = Message.objects.filter(generation=generation).select_related("conversation").first()
    if message is None:
        return
    message.content = message.content[: message.offset] + generation.text
    # Of an answer whose beginning has no tokens, those of the rest say nothing.
    known = not message.offset or bool(message.token_ids)
    message.token_ids = message.token_ids + generation.token_ids if known else []
    message.state = Message.State(generation.state)
    message.save(update_fields=["content", "token_ids", "state"])
    conversation = message.conversation
    conversation.updated = timezone.now()
    conversation.save(update_fields=["updated"])
    if not conversation.title and conversation.deleted is None:
        if message.state == Message.State.COMPLETE:
            ask = partial(tasks.title_conversation.delay, str(conversation.tenant_id), str(conversation.pk))
            transaction.on_commit(ask, robust=True)
        else:
            _title_by_question(conversation)
    _hint(conversation)


def _title_by_question(conversation: Conversation) -> None:
    """Where no answer was completed, nothing asks the model for a title: the question's first words will do."""
    complete = Message.objects.filter(
        conversation=conversation, role=Message.Role.ASSISTANT, state=Message.State.COMPLETE
    )
    question = titles.first_question(conversation)
    if not question or complete.exists():
        return
    title = titles.from_question(question)
    # Not over a title that the member gives at this moment.
    if Conversation.objects.filter(pk=conversation.pk, title="").update(title=title):
        conversation.title = title


def _settle_title(generation: Generation) -> None:
    conversation = Conversation.objects.filter(pk=generation.lineage, title="", deleted__isnull=True).first()
    if conversation is None:
        return
    conversation.title = titles.choose(generation.text, titles.first_question(conversation))
    conversation.save(update_fields=["title"])
    _hint(conversation)


def _hint(conversation: Conversation) -> None:
    if conversation.deleted is not None:
        return
    group = group_of(conversation.tenant_id, conversation.owner_id, conversation.api_key_id)
    payload = {"type": "conversation.changed", "conversation": conversation_as_json(conversation)}
    transaction.on_commit(partial(hints.send_from_thread, group, payload), robust=True)
