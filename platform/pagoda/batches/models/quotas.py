"""The row behind a tenant's file quota, where it is another than the installation's."""

from __future__ import annotations

from django.core.validators import MaxValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import TenantOwned

LARGEST_MIB = 2_000_000_000
"""What every database's integer can hold: close to 2 PiB."""


class FileQuota(TenantOwned):
    """How much a tenant's files may take up. mib: in MiB; None: PAGODA_FILES_QUOTA_MIB; 0: without a limit."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="file_quota")
    mib = models.PositiveIntegerField(
        _("files, in MiB"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(LARGEST_MIB)],
        help_text=_("Inputs and outputs of batches. Empty: PAGODA_FILES_QUOTA_MIB. 0: no limit."),
    )

    class Meta:
        verbose_name = _("file quota")
        verbose_name_plural = _("file quotas")
        default_manager_name = "objects"

    def __str__(self) -> str:
        return "—" if self.mib is None else f"{self.mib} MiB"
