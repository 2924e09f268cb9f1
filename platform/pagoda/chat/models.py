"""Conversations, their messages, and what was asked for under which client_id."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.generations.models import Generation
from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import TenantOwned

TITLE_LENGTH = 200


class Conversation(TenantOwned):
    """A tree of messages that belongs to one person, or to one API key; nobody else in the tenant reads it.

    title: empty until one is made. system_text: the assistant it began with, kept whatever becomes of that: neither its
    meaning nor its cached prefix changes under it. deleted: out of sight from then on, erased by the retention task.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="conversations"
    )
    api_key = models.ForeignKey(ApiKey, null=True, blank=True, on_delete=models.CASCADE, related_name="conversations")
    title = models.CharField(_("title"), max_length=TITLE_LENGTH, blank=True)
    system_text = models.TextField(blank=True, editable=False)
    created = models.DateTimeField(_("created"), default=timezone.now)
    updated = models.DateTimeField(_("updated"), default=timezone.now)
    deleted = models.DateTimeField(_("deleted"), null=True, blank=True)

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ("-updated", "-id")
        default_manager_name = "objects"
        constraints = (
            models.CheckConstraint(
                condition=models.Q(owner__isnull=True) ^ models.Q(api_key__isnull=True),
                name="conversation_has_one_owner",
            ),
        )
        indexes = (
            models.Index(fields=["tenant", "owner", "-updated"], name="conversation_of_member"),
            models.Index(fields=["tenant", "api_key", "-updated"], name="conversation_of_key"),
            models.Index(fields=["deleted"], name="conversation_deleted", condition=models.Q(deleted__isnull=False)),
        )

    def __str__(self) -> str:
        return str(self.id)


class Message(TenantOwned):
    """One turn. Messages with the same parent are alternatives (an edit, a regenerated answer).

    generation: the run that wrote, or is writing, the text from ``offset`` (in code points) on; what is before it was
    written by earlier runs, before a Continue. While the state is streaming, content holds that earlier text alone.
    token_ids: what an answer's content was generated as, all its runs together; empty where that is not known.
    """

    class Role(models.TextChoices):
        USER = "user", _("user")
        ASSISTANT = "assistant", _("assistant")

    class State(models.TextChoices):
        STREAMING = "streaming", _("streaming")
        COMPLETE = "complete", _("complete")
        CANCELLED = "cancelled", _("cancelled")
        INTERRUPTED = "interrupted", _("interrupted")
        FAILED = "failed", _("failed")

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE, related_name="children")
    role = models.CharField(_("role"), max_length=10, choices=Role.choices)
    content = models.TextField(_("content"), blank=True)
    token_ids = models.JSONField(default=list, editable=False)
    state = models.CharField(_("state"), max_length=16, choices=State.choices, default=State.COMPLETE)
    generation = models.ForeignKey(
        Generation, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", editable=False
    )
    offset = models.PositiveIntegerField(default=0, editable=False)
    created = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ("created", "id")
        default_manager_name = "objects"

    def __str__(self) -> str:
        return f"{self.role} {self.id}"


class Submission(TenantOwned):
    """What somebody asked for once, under a client_id of their own, and the rows it made.

    The unique key is what makes a request that is sent twice (a reconnection, an impatient finger) happen once. sender:
    ``user:<id>`` or ``key:<id>``. A Continue and a regenerated answer have no user message.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    sender = models.CharField(max_length=48)
    client_id = models.CharField(max_length=64)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="submissions")
    user_message = models.ForeignKey(Message, null=True, on_delete=models.CASCADE, related_name="+")
    assistant_message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="+")
    generation = models.OneToOneField(Generation, on_delete=models.CASCADE, related_name="+")
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = _("submission")
        verbose_name_plural = _("submissions")
        default_manager_name = "objects"
        constraints = (
            models.UniqueConstraint(fields=["tenant", "sender", "client_id"], name="submission_happens_once"),
        )

    def __str__(self) -> str:
        return str(self.id)
