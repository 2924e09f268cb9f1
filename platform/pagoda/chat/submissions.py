"""What a member asks for: a new message, another answer, the rest of an answer. Once per client_id.

Two synchronous steps under the tenant's scope, so that nothing waits for an engine inside a transaction: ``prepare``
checks the request and reads the path, ``commit`` writes all rows in one transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from pagoda.assistants import models as assistants
from pagoda.chat import context, conversations, limits
from pagoda.chat.identity import Identity
from pagoda.chat.models import Conversation, Message, Submission
from pagoda.chat.objects import conversation_as_json, messages_as_json
from pagoda.chat.requests import (
    CreateMessage,
    RegenerateMessage,
    RequestRefused,
    SamplingChoice,
    Submit,
)
from pagoda.generations import service
from pagoda.generations.models import Generation
from pagoda.tenants.identifiers import new_id
from pagoda_inference.protocol import ChatMessage, ModelInfo, Sampling

MAX_TOKENS = 1024
TEMPERATURE = 0.2
TEMPERATURE_OF_ANOTHER_ANSWER = 0.8
TOP_P = 0.9

ALWAYS_CONTINUABLE = (Message.State.INTERRUPTED, Message.State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that can be carried out. turns: what the model would read, uncut.

    system_text: what a new conversation begins with; an old one has its own. parent: what the new message follows, for
    a Continue what the continued answer follows. continued: that answer; kept_ids: the tokens of what is kept of it,
    none where they are not known.
    """

    request: Submit
    conversation_id: uuid.UUID
    parent: Message | None
    continued: Message | None
    turns: tuple[ChatMessage, ...]
    kept_ids: tuple[int, ...] = ()
    system_text: str = ""

    @property
    def kept(self) -> str:
        """What a Continue goes on from; '' where it begins anew, and for a new answer."""
        return "" if self.continued is None else _whole_characters(self.continued)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The rows of a submission. repeated: they were there before."""

    conversation: dict[str, Any]
    user_message: dict[str, Any] | None
    assistant_message: dict[str, Any]
    generation: Generation
    assistant_message_id: uuid.UUID
    repeated: bool


def find(identity: Identity, client_id: str) -> Submitted | None:
    """What this client_id made before. Raises RequestRefused(not_found) where that was deleted since."""
    submission = (
        Submission.objects.filter(sender=identity.sender, client_id=client_id)
        .select_related("conversation", "user_message", "assistant_message", "generation")
        .first()
    )
    if submission is None:
        return None
    if submission.conversation.deleted is not None:
        raise RequestRefused("not_found", "What this client_id made was deleted.", "client_id")
    return _submitted(submission, repeated=True)


def prepare(identity: Identity, request: Submit) -> Plan | Submitted:
    """Check a request; gives the rows where it was carried out before. Raises RequestRefused."""
    known = find(identity, request.client_id)
    if known is not None:
        return known
    limits.check_may_ask(identity)
    if isinstance(request, CreateMessage):
        return _prepare_message(identity, request)
    message = conversations.find_message(identity, request.message_id)
    if message.role != Message.Role.ASSISTANT:
        raise RequestRefused("invalid", "This is not an answer.", "message_id")
    _refuse_streaming(message, "message_id")
    turns = (*context.opening(message.conversation.system_text), *context.path_to(message.parent))
    if isinstance(request, RegenerateMessage):
        return Plan(request, message.conversation_id, message.parent, None, turns)
    _refuse_not_continuable(message)
    if written := _whole_characters(message):
        turns += (ChatMessage("assistant", written, tuple(message.token_ids)),)
    return Plan(request, message.conversation_id, message.parent, message, turns)


def commit(
    identity: Identity, plan: Plan, messages: Sequence[ChatMessage], *, model: ModelInfo, owner: str
) -> Submitted:
    """Write the rows. The same client_id at the same moment on another socket gives the rows of whoever was first.

    messages: the plan's turns, cut to the context. owner: the recorder that will be started with the generation.
    Raises RequestRefused: conflict, rate_limited, budget_used.
    """
    try:
        with transaction.atomic():
            return _submitted(_write(identity, plan, messages, model, owner), repeated=False)
    except IntegrityError:
        known = find(identity, plan.request.client_id)
        if known is None:
            raise
        return known


def _prepare_message(identity: Identity, request: CreateMessage) -> Plan:
    question = ChatMessage("user", request.content)
    if request.conversation_id is None:
        if request.parent_id is not None:
            raise RequestRefused("invalid", "A new conversation has no message to follow.", "parent_id")
        system_text = assistants.system_text()
        turns = (*context.opening(system_text), question)
        return Plan(request, new_id(), None, None, turns, system_text=system_text)
    conversation = conversations.find(identity, request.conversation_id)
    parent = None
    if request.parent_id is not None:
        parent = conversations.find_message(identity, request.parent_id, "parent_id")
        if parent.conversation_id != conversation.pk:
            raise RequestRefused("not_found", "No such message in this conversation.", "parent_id")
        if parent.role != Message.Role.ASSISTANT:
            raise RequestRefused("invalid", "A question follows an answer.", "parent_id")
        _refuse_streaming(parent, "parent_id")
    turns = (*context.opening(conversation.system_text), *context.path_to(parent), question)
    return Plan(request, conversation.pk, parent, None, turns)


def _refuse_streaming(message: Message, field: str) -> None:
    if message.state == Message.State.STREAMING:
        raise RequestRefused("conflict", "This answer is still being written: wait for it or stop it.", field)


def _refuse_not_continuable(message: Message) -> None:
    """A failed answer goes on from its text: what ended it (a limit, a fault of the model) may be over."""
    if message.state in ALWAYS_CONTINUABLE:
        return
    if message.state == Message.State.FAILED:
        if not _whole_characters(message):
            reason = "This answer failed before anything was written: ask for another one."
            raise RequestRefused("conflict", reason, "message_id")
    elif message.generation is None or message.generation.finish_reason != "length":
        raise RequestRefused("conflict", "This answer is complete: there is nothing to continue.", "message_id")


def _write(identity: Identity, plan: Plan, messages: Sequence[ChatMessage], model: ModelInfo, owner: str) -> Submission:
    now = timezone.now()
    generation_id = new_id()
    max_tokens = limits.hold(
        identity,
        generation_id,
        messages,
        context_length=model.context_length,
        wanted=plan.request.sampling.max_tokens,
        usual=MAX_TOKENS,
    )
    conversation, _ = Conversation.objects.get_or_create(
        pk=plan.conversation_id,
        defaults={"tenant": identity.tenant, "created": now, "updated": now, "system_text": plan.system_text}
        | identity.owner_fields(),
    )
    Conversation.objects.filter(pk=conversation.pk).update(updated=now)
    conversation.updated = now
    generation = service.create(
        generation_id=generation_id,
        tenant=identity.tenant,
        messages=messages,
        owner=owner,
        sampling=_sampling(plan.request, max_tokens),
        user=identity.user,
        api_key=identity.api_key,
        lineage=str(conversation.pk),
        model=model.id,
        continue_final=bool(plan.kept),
    )
    question: Message | None = None
    if isinstance(plan.request, CreateMessage):
        question = Message.objects.create(
            tenant=identity.tenant,
            conversation=conversation,
            parent=plan.parent,
            role=Message.Role.USER,
            content=plan.request.content,
            created=now,
        )
    if plan.continued is not None:
        answer = _continue(plan, plan.continued, generation)
    else:
        answer = Message.objects.create(
            tenant=identity.tenant,
            conversation=conversation,
            parent=question or plan.parent,
            role=Message.Role.ASSISTANT,
            state=Message.State.STREAMING,
            generation=generation,
            created=now,
        )
    return Submission.objects.create(
        tenant=identity.tenant,
        sender=identity.sender,
        client_id=plan.request.client_id,
        conversation=conversation,
        user_message=question,
        assistant_message=answer,
        generation=generation,
        created=now,
    )


def _continue(plan: Plan, message: Message, generation: Generation) -> Message:
    """Hand the message to its next generation; of two that try at once, one does."""
    untouched = Message.objects.filter(pk=message.pk, generation_id=message.generation_id, state=message.state)
    message.content, message.token_ids = plan.kept, list(plan.kept_ids)
    message.state, message.offset, message.generation = Message.State.STREAMING, len(message.content), generation
    if not untouched.update(
        state=message.state,
        generation=message.generation,
        content=message.content,
        token_ids=message.token_ids,
        offset=message.offset,
    ):
        raise RequestRefused("conflict", "This answer is being continued already.", "message_id")
    return message


def _whole_characters(message: Message) -> str:
    """What was written, without the replacement character that stands for half of one, where the answer was cut."""
    return message.content.rstrip("\ufffd")


def _sampling(request: Submit, max_tokens: int) -> Sampling:
    choice: SamplingChoice = request.sampling
    usual = TEMPERATURE_OF_ANOTHER_ANSWER if isinstance(request, RegenerateMessage) else TEMPERATURE
    return Sampling(
        max_tokens=max_tokens,
        temperature=usual if choice.temperature is None else choice.temperature,
        top_p=TOP_P if choice.top_p is None else choice.top_p,
        seed=choice.seed,
        stop=tuple(choice.stop or ()),
    )


def _submitted(submission: Submission, *, repeated: bool) -> Submitted:
    rows = [row for row in (submission.user_message, submission.assistant_message) if row is not None]
    shown = messages_as_json(rows)
    return Submitted(
        conversation=conversation_as_json(submission.conversation),
        user_message=shown[0] if submission.user_message is not None else None,
        assistant_message=shown[-1],
        generation=submission.generation,
        assistant_message_id=submission.assistant_message_id,
        repeated=repeated,
    )
