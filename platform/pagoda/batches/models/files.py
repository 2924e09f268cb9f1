"""The row behind a file: what it is for, and how large."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey, Tenant
from pagoda.tenants.scoping import TenantOwned

PREFIX = "file-"


class StoredFile(TenantOwned):
    """A file of a tenant: uploaded, or the output of a batch. Its bytes lie where ``storage.path_of`` says.

    expires: when its client wants it deleted (``retention.expiry`` has the whole rule).
    """

    class Purpose(models.TextChoices):
        BATCH = "batch", _("input of a batch")
        BATCH_OUTPUT = "batch_output", _("output of a batch")

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="files")
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.SET_NULL, related_name="+")
    purpose = models.CharField(_("purpose"), max_length=20, choices=Purpose.choices)
    filename = models.CharField(_("file name"), max_length=255)
    bytes = models.PositiveBigIntegerField(_("bytes"))
    created = models.DateTimeField(_("created"), default=timezone.now)
    expires = models.DateTimeField(_("expires"), null=True)

    class Meta:
        verbose_name = _("file")
        verbose_name_plural = _("files")
        ordering = ("-created", "-id")
        default_manager_name = "objects"

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        """The id that clients know."""
        return f"{PREFIX}{self.id.hex}"
