"""Usage by tenant and day, from the hourly sums; and the single records behind them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Max, QuerySet, Sum
from django.db.models.functions import TruncDate, TruncDay
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_celery_beat.models import PeriodicTask
from unfold.admin import ModelAdmin

from pagoda.tenants.admin_rows import AcrossTenants, ReadOnly
from pagoda.usage import export, pricing
from pagoda.usage.filters import DaysFilter, KnownModelFilter, PurposeFilter
from pagoda.usage.forms import DaysForm
from pagoda.usage.models import Price, UsageHour, UsageRecord
from pagoda.usage.pricing import PriceLists
from pagoda.usage.rollup import SUMS


@admin.register(UsageHour)
class UsageHourAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    list_display = ("hour", "of_tenant", "model", *SUMS, "hit_rate")
    list_filter = (("hour", DaysFilter), "tenant", KnownModelFilter)
    list_filter_submit = True
    list_select_related = ("tenant",)
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
            context["export_form"] = DaysForm.of(request.GET)
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
    """Sums by tenant and day (in the site's time zone) of the latest ``days``, the last first, with the share cached
    and the cost. Prices change at midnight UTC: a day may be paid by two of them."""
    latest = hours.aggregate(latest=Max("hour"))["latest"] or timezone.now()
    begin = timezone.localtime(latest).replace(hour=0) - timedelta(days=days - 1)
    rows: Any = (
        hours.filter(hour__gte=begin)
        .order_by()
        .annotate(day=TruncDay("hour"), utc_day=TruncDate("hour", tzinfo=UTC))
        .values("day", "utc_day", "tenant_id", "tenant__name")
        .annotate(**{f"{name}_sum": Sum(name) for name in SUMS})
        .order_by("-day", "tenant__name", "tenant_id")
    )
    prices = PriceLists(Price.across_tenants.filter(tenant_id__in={row["tenant_id"] for row in rows}))
    totals: dict[Any, dict[str, Any]] = {}
    for row in rows:
        empty = {"day": row["day"], "tenant": row["tenant__name"], "costs": {}} | dict.fromkeys(SUMS, 0)
        total = totals.setdefault((row["day"], row["tenant_id"]), empty)
        for name in SUMS:
            total[name] += row[f"{name}_sum"]
        numbers = (row[f"{name}_sum"] for name in SUMS[1:])
        pricing.add(total["costs"], prices.cost(row["tenant_id"], row["utc_day"], *numbers))
    for total in totals.values():
        total["hit_rate"] = percentage(total["cached_tokens"], total["prompt_tokens"])
        total["cost"] = pricing.as_text(total["costs"])
    return list(totals.values())


def percentage(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "—"


@admin.register(UsageRecord)
class UsageRecordAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    """Without what reads the whole ledger to find its days, its models or its purposes."""

    list_display = ("created", "of_tenant", "user", "api_key", "model", "purpose", *SUMS[1:])
    list_filter = (("created", DaysFilter), "tenant", PurposeFilter, KnownModelFilter)
    list_filter_submit = True
    list_select_related = ("tenant", "user", "api_key")
    show_full_result_count = False

    def get_urls(self) -> list[URLPattern]:
        own = path("export.csv", self.admin_site.admin_view(self.export_csv), name="usage_usagerecord_export")
        return [own, *super().get_urls()]

    def export_csv(self, request: HttpRequest) -> HttpResponseBase:
        """``?first=&last=&tenant=``: two days (UTC), and the id of one tenant; without it all of them."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form, tenant = DaysForm.of(request.GET), request.GET.get("tenant")
        try:
            tenant_id = uuid.UUID(tenant) if tenant else None
        except ValueError:
            form.add_error(None, _("There is no such tenant."))
        if not form.is_valid():
            return HttpResponse(form.errors.as_text(), status=422, content_type="text/plain; charset=utf-8")
        return export.response(*form.days(), tenant_id=tenant_id)
