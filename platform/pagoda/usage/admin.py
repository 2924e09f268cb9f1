"""Usage by tenant and day, from the hourly sums; and the single records behind them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet, Sum
from django.db.models.functions import TruncDay
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django_celery_beat.models import PeriodicTask
from unfold.admin import ModelAdmin

from pagoda.tenants.admin import AcrossTenants, ReadOnly
from pagoda.usage.models import UsageHour, UsageRecord
from pagoda.usage.rollup import SUMS


@admin.register(UsageHour)
class UsageHourAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    list_display = ("hour", "tenant", "model", *SUMS, "hit_rate")
    list_filter = ("tenant", "model")
    list_select_related = ("tenant",)
    date_hierarchy = "hour"
    list_before_template = "usage/totals.html"

    @admin.display(description=gettext_lazy("cached"))
    def hit_rate(self, row: UsageHour) -> str:
        return percentage(row.cached_tokens, row.prompt_tokens)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None)
        if context and "cl" in context:
            context["days"] = totals_by_day(context["cl"].queryset)
            context["next_roll_up"] = next_roll_up()
        return response


def next_roll_up() -> datetime | None:
    """When the sums are made next; None where the task is switched off, or was never scheduled."""
    task = PeriodicTask.objects.filter(task="usage.roll_up", enabled=True).first()
    if task is None:
        return None
    now = timezone.now()
    # The estimate is taken against a slightly later clock: a second more, so that 2:04:59.9 is told as 2:05.
    return now + task.schedule.remaining_estimate(now) + timedelta(seconds=1)


def totals_by_day(hours: QuerySet[UsageHour], days: int = 31) -> list[dict[str, Any]]:
    """Sums by tenant and day (in the site's time zone) of the hours, the latest first, with the share cached."""
    rows: Any = (
        hours.order_by()
        .annotate(day=TruncDay("hour"))
        .values("day", "tenant__name")
        .annotate(**{f"{name}_sum": Sum(name) for name in SUMS})
        .order_by("-day", "tenant__name")
    )
    totals = [
        {"day": row["day"], "tenant": row["tenant__name"]} | {n: row[f"{n}_sum"] for n in SUMS}
        for row in rows[: days * 20]
    ]
    for total in totals:
        total["hit_rate"] = percentage(total["cached_tokens"], total["prompt_tokens"])
    return totals


def percentage(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "—"


@admin.register(UsageRecord)
class UsageRecordAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    list_display = ("created", "tenant", "user", "api_key", "model", "purpose", *SUMS[1:])
    list_filter = ("tenant", "purpose", "model")
    list_select_related = ("tenant", "user", "api_key")
    date_hierarchy = "created"
