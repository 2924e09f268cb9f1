"""Calls with an Idempotency-Key: what was answered, for a day."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import TenantOwned


class IdempotentCall(TenantOwned):
    """One call that may be repeated without being carried out again.

    key_hash: SHA-256 of the client's key. request_hash: of what was asked, so that another question under the same key
    is noticed. status 0: in flight, until ``held_until`` runs out with the process that carries it out.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    key_hash = models.CharField(max_length=64)
    request_hash = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    content_type = models.CharField(max_length=100, blank=True)
    body = models.BinaryField(default=bytes)
    held_until = models.DateTimeField()
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = _("repeatable call")
        verbose_name_plural = _("repeatable calls")
        ordering = ("-created",)
        default_manager_name = "objects"
        constraints = (models.UniqueConstraint(fields=["tenant", "key_hash"], name="idempotent_call_once"),)
        indexes = (models.Index(fields=["created"], name="idempotent_call_created"),)

    def __str__(self) -> str:
        return f"{self.status} {self.created:%Y-%m-%d %H:%M}"
