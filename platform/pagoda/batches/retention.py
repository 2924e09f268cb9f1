"""How long files are kept: as long as their client said, and never longer than the installation keeps any."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from pagoda.batches.models import Batch, StoredFile
from pagoda.tenants.scoping import tenant_scope

logger = logging.getLogger(__name__)


def expiry(file: StoredFile) -> datetime | None:
    """When a file is deleted; None: when somebody does. The input of a batch stays until the batch has ended."""
    ends = [file.expires] if file.expires is not None else []
    if settings.PAGODA_FILES_RETENTION_DAYS:
        ends.append(file.created + timedelta(days=settings.PAGODA_FILES_RETENTION_DAYS))
    return min(ends, default=None)


def delete_expired(now: datetime | None = None) -> int:
    """Delete every tenant's files whose time is over. Returns how many."""
    now = now or timezone.now()
    over = Q(expires__lte=now)
    if settings.PAGODA_FILES_RETENTION_DAYS:
        over |= Q(created__lte=now - timedelta(days=settings.PAGODA_FILES_RETENTION_DAYS))
    read = Batch.across_tenants.filter(finished__isnull=True).values("input_file")
    deleted = 0
    for id, tenant_id in list(
        StoredFile.across_tenants.filter(over).exclude(pk__in=read).values_list("pk", "tenant_id")
    ):
        with tenant_scope(tenant_id):
            file = StoredFile.objects.filter(pk=id).first()
            deleted += file is not None and delete_unless_read(file)
    if deleted:
        logger.info("%d files were deleted: their time was over", deleted)
    return deleted


@transaction.atomic
def delete_unless_read(file: StoredFile) -> bool:
    """Delete a file; False where a batch that has not ended reads it. In the tenant's scope."""
    # Whoever makes a batch of it locks the row too.
    if StoredFile.objects.select_for_update().filter(pk=file.pk).first() is None:
        return False
    if Batch.objects.filter(input_file=file.pk, finished__isnull=True).exists():
        return False
    file.delete()
    return True
