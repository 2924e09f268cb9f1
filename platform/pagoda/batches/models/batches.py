"""The rows behind a batch: how far it has come, and the results of its lines until they are in its files."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey, Tenant
from pagoda.tenants.scoping import TenantOwned

PREFIX = "batch_"


class Status(models.TextChoices):
    """As OpenAI's API has them."""

    VALIDATING = "validating", _("validating")
    FAILED = "failed", _("failed")
    IN_PROGRESS = "in_progress", _("in progress")
    FINALIZING = "finalizing", _("finalizing")
    COMPLETED = "completed", _("completed")
    EXPIRED = "expired", _("expired")
    CANCELLING = "cancelling", _("cancelling")
    CANCELLED = "cancelled", _("cancelled")


FINAL = frozenset({Status.FAILED, Status.COMPLETED, Status.EXPIRED, Status.CANCELLED})
"""Nothing happens to such a batch any more."""


class Batch(TenantOwned):
    """Many requests in one file, carried out by the worker within a day.

    input_file, output_file, error_file: ids of StoredFiles, which may be deleted before the batch is.
    output_expires_after: seconds that the files it writes are kept; None: as long as any. errors: what was
    wrong with the input, or why the batch ended early ({"code", "message", "param", "line"}). total: lines of the
    input; completed, failed: lines with a result so far. outcome: what it becomes once its files are written.
    lease_owner, lease_expires: the runner in charge; a lease that ran out is anybody's.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="batches")
    api_key = models.ForeignKey(
        ApiKey, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("API key")
    )
    endpoint = models.CharField(_("endpoint"), max_length=40)
    input_file = models.UUIDField(_("input file"))
    output_file = models.UUIDField(_("output file"), null=True)
    error_file = models.UUIDField(_("error file"), null=True)
    status = models.CharField(_("status"), max_length=12, choices=Status.choices, default=Status.VALIDATING)
    outcome = models.CharField(max_length=12, blank=True)
    metadata = models.JSONField(null=True)
    output_expires_after = models.PositiveIntegerField(null=True)
    errors = models.JSONField(default=list)
    total = models.PositiveIntegerField(_("lines"), default=0)
    completed = models.PositiveIntegerField(_("completed"), default=0)
    failed = models.PositiveIntegerField(_("failed"), default=0)
    created = models.DateTimeField(_("created"), default=timezone.now)
    expires = models.DateTimeField(_("expires"))
    in_progress_at = models.DateTimeField(null=True)
    finalizing_at = models.DateTimeField(null=True)
    cancelling_at = models.DateTimeField(null=True)
    finished = models.DateTimeField(_("ended"), null=True)
    lease_owner = models.CharField(max_length=64, blank=True)
    lease_expires = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        ordering = ("-created", "-id")
        default_manager_name = "objects"
        indexes = (
            models.Index(fields=["tenant", "created"], name="batch_of_tenant"),
            models.Index(fields=["created"], name="batch_unfinished", condition=models.Q(finished__isnull=True)),
        )

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        """The id that clients know."""
        return f"{PREFIX}{self.id.hex}"


class BatchLine(TenantOwned):
    """The result of one line, from its settlement until it is in a file of its batch.

    number: of the line in the input, from 1. text: the line of the output file (ok) or of the error file.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="lines")
    number = models.PositiveIntegerField()
    ok = models.BooleanField()
    text = models.TextField()

    class Meta:
        default_manager_name = "objects"
        constraints = (models.UniqueConstraint(fields=["batch", "number"], name="batch_line_once"),)

    def __str__(self) -> str:
        return f"{self.batch_id}:{self.number}"
