"""The row behind one run of an engine."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.scoping import TenantOwned


class Generation(TenantOwned):
    """One run of an engine: what was asked, how far it came, and who records it.

    request: what the engine is sent ({"messages", "sampling", "request_class", "continue_final", "scope"}); its texts
    are dropped when the generation settles, since whoever asked keeps them. lineage: the conversation it belongs to, as
    an opaque id. engine: the address it runs on; engine_instance: that engine's start. seq, text, output_tokens and
    token_ids (the tokens behind text) are the last snapshot. lease_owner and lease_expires: the recorder in charge; a
    lease that ran out is anybody's.
    """

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        STREAMING = "streaming", _("streaming")
        COMPLETE = "complete", _("complete")
        CANCELLED = "cancelled", _("cancelled")
        INTERRUPTED = "interrupted", _("interrupted")
        FAILED = "failed", _("failed")

    class Purpose(models.TextChoices):
        CHAT = "chat", _("chat")
        TITLE = "title", _("title")
        API = "api", _("API")
        BATCH = "batch", _("batch")

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    purpose = models.CharField(max_length=16, choices=Purpose.choices, default=Purpose.CHAT)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="generations"
    )
    api_key = models.ForeignKey(
        "tenants.ApiKey", null=True, blank=True, on_delete=models.SET_NULL, related_name="generations"
    )
    lineage = models.CharField(max_length=64, blank=True, db_index=True)
    engine = models.CharField(max_length=255)
    engine_instance = models.CharField(max_length=64, blank=True)
    model = models.CharField(max_length=255, blank=True)
    request = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    cancel_requested = models.BooleanField(default=False)
    finish_reason = models.CharField(max_length=16, blank=True)
    error = models.JSONField(null=True, blank=True)
    seq = models.PositiveIntegerField(default=0)
    text = models.TextField(blank=True)
    token_ids = models.JSONField(default=list, editable=False)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    blocks_freed = models.PositiveIntegerField(default=0)
    queued_s = models.FloatField(default=0.0)
    prefill_s = models.FloatField(default=0.0)
    decode_s = models.FloatField(default=0.0)
    lease_owner = models.CharField(max_length=64, blank=True)
    lease_expires = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("generation")
        verbose_name_plural = _("generations")
        ordering = ["-created"]
        default_manager_name = "objects"
        indexes = [
            models.Index(
                fields=["lease_expires"], name="generation_in_progress", condition=models.Q(finished__isnull=True)
            ),
            models.Index(fields=["api_key", "created"], name="generation_by_key"),
            models.Index(fields=["user", "created"], name="generation_by_user"),
        ]

    def __str__(self) -> str:
        return f"{self.purpose} {self.id}"

    @property
    def settled(self) -> bool:
        """Whether the result is final."""
        return self.finished is not None

    @property
    def account(self) -> str:
        """The tenant's account in the engine's pool."""
        return str(self.tenant_id)

    def usage(self) -> dict[str, Any]:
        """Tokens, seconds and the receipt of a Stop, as clients see them; None: the engine died and told nothing."""
        told = bool(self.queued_s or self.prefill_s or self.decode_s)
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "queued_s": round(self.queued_s, 4) if told else None,
            "prefill_s": round(self.prefill_s, 4) if told else None,
            "decode_s": round(self.decode_s, 4) if told else None,
            "blocks_freed": self.blocks_freed if told else None,
        }


class PendingPurge(models.Model):
    """A lineage that one engine must forget: written with the deletion, gone when the engine has confirmed it.

    account is no foreign key: the order outlives a tenant that is deleted before its engine comes back.
    """

    account = models.CharField(max_length=64)
    lineage = models.CharField(max_length=64)
    engine = models.CharField(max_length=255)
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = _("pending purge")
        verbose_name_plural = _("pending purges")
        ordering = ("id",)
        indexes = (models.Index(fields=["engine", "id"], name="pending_purge_of_engine"),)

    def __str__(self) -> str:
        return f"{self.lineage} · {self.engine}"
