"""Lists in pages, as OpenAI's clients turn them: ``limit`` rows after the one that ``after`` names."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Q

from pagoda.api.errors import ApiError
from pagoda.batches.models import Batch, StoredFile
from pagoda.batches.objects import parse_id
from pagoda.tenants.scoping import TenantQuerySet

Row = TypeVar("Row", Batch, StoredFile)


def page(
    rows: TenantQuerySet[Row], prefix: str, after: str | None, limit: int, *, newest_first: bool = True
) -> tuple[list[Row], bool]:
    """The rows of a page, in the order they were made, and whether there are more. In the tenant's scope.

    Raises ApiError where ``after`` names nothing of the list.
    """
    if after is not None:
        id = parse_id(after, prefix)
        last = rows.filter(pk=id).first() if id else None
        if last is None:
            raise ApiError("invalid_value", "There is nothing with this id in the list.", "after")
        if newest_first:
            rows = rows.filter(Q(created__lt=last.created) | Q(created=last.created, pk__lt=last.pk))
        else:
            rows = rows.filter(Q(created__gt=last.created) | Q(created=last.created, pk__gt=last.pk))
    order = ("-created", "-pk") if newest_first else ("created", "pk")
    found = list(rows.order_by(*order)[: limit + 1])
    return found[:limit], len(found) > limit
