"""How much of its file quota a tenant takes up, and what it is told where there is no room.

Everything here is under the tenant's scope. What counts are the rows of its files: inputs and outputs alike. What a
batch writes is written whatever the quota says, for its answers are paid for; a tenant without room begins no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db.models import Count, Sum

from pagoda.api.errors import ApiError
from pagoda.batches.models import FileQuota, StoredFile
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import current_tenant_id

CODE = "file_quota_exceeded"
_REMEDY = "Delete files (DELETE /v1/files/{file_id}), or ask an operator for a larger quota."


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes that a tenant's files take up, how many files they are, and the most bytes there may be; None: no limit."""

    used: int
    files: int
    most: int | None

    @property
    def room(self) -> int | None:
        """Bytes left, never below 0; None: no limit."""
        return None if self.most is None else max(0, self.most - self.used)

    @property
    def is_full(self) -> bool:
        return self.room == 0


def space() -> Space:
    """Of the tenant in scope."""
    counted = StoredFile.objects.aggregate(used=Sum("bytes"), files=Count("pk"))
    own = FileQuota.objects.values_list("mib", flat=True).first()
    mib = settings.PAGODA_FILES_QUOTA_MIB if own is None else own
    return Space(counted["used"] or 0, counted["files"], mib << 20 if mib else None)


def locked_space() -> Space:
    """The same, in a transaction: nobody else adds a file of the tenant before it ends."""
    # Rows that refer to the tenant may still be written: they lock its key alone.
    Tenant.objects.select_for_update(no_key=True).get(pk=current_tenant_id())
    return space()


def no_room(space: Space, param: str | None = None) -> ApiError:
    """For a file that does not fit: the numbers, and what to do."""
    return ApiError(CODE, f"{_taken(space)}: a file of more than {space.room:,} bytes does not fit. {_REMEDY}", param)


def is_full(space: Space) -> str:
    """For a batch, whose output would have no room."""
    return f"{_taken(space)}: there is no room for what a batch writes. {_REMEDY}"


def _taken(space: Space) -> str:
    return f"Your tenant's files take up {space.used:,} of {space.most:,} bytes"
