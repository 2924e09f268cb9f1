"""Filters of the admin's lists of usage: none reads the whole ledger to know what there is to choose from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import DateField
from django.http import HttpRequest
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.admin import RangeDateFilter

from pagoda.usage.models import UsageHour
from pagoda.usage.sums import midnight

PURPOSES = ("chat", "title", "api", "batch")
"""What generations are for, as the ledger has it."""


class DaysFilter(RangeDateFilter):
    """Days (UTC), both included, of a moment. What is no day is told in the form, and nothing is found."""

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        name, day = self.parameter_name, DateField(required=False)
        try:
            first, last = (day.clean(self.used_parameters.get(f"{name}_{end}")) for end in ("from", "to"))
            bounds = {f"{name}__gte": midnight(first)} if first else {}
            if last:
                bounds[f"{name}__lt"] = midnight(last + timedelta(days=1))
        except (ValidationError, OverflowError):
            return queryset.none()
        return queryset.filter(**bounds)


class KnownModelFilter(admin.SimpleListFilter):
    """The models of the hourly sums: few rows, whatever the ledger's length."""

    title = gettext_lazy("model")
    parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = UsageHour.across_tenants.order_by("model").values_list("model", flat=True).distinct()
        return [(name, name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(model=self.value()) if self.value() else queryset


class PurposeFilter(admin.SimpleListFilter):
    title = gettext_lazy("purpose")
    parameter_name = "purpose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in PURPOSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(purpose=self.value()) if self.value() else queryset
