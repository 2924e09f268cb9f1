"""What the pages of the operators' admin have in common: rows of all tenants, and rows that nobody edits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.forms import ModelChoiceField, ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy
from unfold.decorators import display
from unfold.forms import PaginationInlineFormSet

from pagoda.tenants.models import User
from pagoda.tenants.scoping import tenant_scope


class AcrossTenants:
    """Operators see every tenant's rows: through the explicit manager, never through a scope.

    read_along: relations that every row shows, for one query instead of one for each row.
    """

    model: type[Model]
    read_along: tuple[str, ...] = ()

    @display(description=gettext_lazy("tenant"), ordering="tenant__name")
    def of_tenant(self, row: Any) -> str:
        """The column, with a name in every language."""
        return str(row.tenant) if row.tenant else "—"

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        model: Any = self.model
        ordering = self.get_ordering(request) or model._meta.ordering  # type: ignore[attr-defined]
        rows = model.across_tenants.order_by(*ordering)
        return rows.select_related(*self.read_along) if self.read_along else rows


PER_PAGE = 25
"""Rows of an inline that a page shows at a time: a form for each of hundreds would take seconds."""

NOBODY = uuid.UUID(int=0)


class AcrossTenantsFormSet(PaginationInlineFormSet):
    """Django makes the hidden key fields with the default manager, which wants a scope: give it an empty one, then the
    rows of the inline.

    In pages, where the inline has ``per_page``. What was sent concerns the rows that were shown, whichever page they
    are on by then: rows may have come or gone meanwhile.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.per_page and self.is_bound:
            self._queryset = self.queryset.filter(pk__in=self._sent_keys())

    def _sent_keys(self) -> list[Any]:
        key = self.model._meta.pk
        sent = []
        for number in range(min(self.initial_form_count(), self.absolute_max)):
            with suppress(ValidationError):
                sent.append(key.to_python(self.data.get(f"{self.add_prefix(number)}-{key.name}")))
        return sent

    def add_fields(self, form: ModelForm, index: int | None) -> None:
        with tenant_scope(NOBODY):
            super().add_fields(form, index)
        field = form.fields.get(self.model._meta.pk.name)
        if isinstance(field, ModelChoiceField):
            field.queryset = self.queryset  # not get_queryset(): a page of it cannot be searched


Shown = TypeVar("Shown")


def worked_out_once(field: Callable[[Any, Any], Shown]) -> Callable[[Any, Any], Shown]:
    """A read-only field that needs queries: a form's template asks for it several times for each row it shows.

    What is shown is kept with the row object, which lives as long as the request.
    """
    kept = f"_shown_{field.__name__}"

    @wraps(field)
    def shown(page: Any, row: Any) -> Shown:
        if kept not in row.__dict__:
            row.__dict__[kept] = field(page, row)
        result: Shown = row.__dict__[kept]
        return result

    return shown


class ReadOnly:
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def acting(request: HttpRequest) -> User:
    """The operator behind a request that the admin has let in."""
    assert isinstance(request.user, User)
    return request.user
