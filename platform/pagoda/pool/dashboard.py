"""The admin's first page: how many people, how much work today, and how full the pool is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from pagoda.pool.live import current_report
from pagoda.tenants.models import AuditEntry, Tenant, User
from pagoda.usage.models import UsageRecord


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Fills the context of admin/index.html (called by the admin's theme)."""
    since = timezone.now() - timedelta(hours=24)
    records = UsageRecord.across_tenants.filter(created__gte=since)
    asked_for = ~Q(purpose="title")  # a title is the platform's own work
    sums = records.aggregate(
        answers=Count("id", filter=asked_for),
        output=Sum("output_tokens", filter=asked_for),
        prompt=Sum("prompt_tokens"),
        cached=Sum("cached_tokens"),
    )
    prompt, cached = sums["prompt"] or 0, sums["cached"] or 0
    tenants = Tenant.objects.filter(is_active=True).count()
    people = User.objects.filter(is_active=True).count()
    context["tiles"] = [
        _pool_tile(),
        _tile(_("Tenants"), f"{tenants:,}", _("active"), "admin:tenants_tenant_changelist"),
        _tile(_("People"), f"{people:,}", _("can sign in"), "admin:tenants_user_changelist"),
        _tile(_("Answers"), f"{sums['answers']:,}", _("in the last 24 hours"), "admin:usage_usagerecord_changelist"),
        _tile(
            _("Tokens written"),
            f"{sums['output'] or 0:,}",
            _("in the last 24 hours"),
            "admin:usage_usagehour_changelist",
        ),
        _tile(
            _("Prompt tokens from the cache"),
            f"{100 * cached / prompt:.0f} %" if prompt else "—",
            _("in the last 24 hours"),
            "admin:usage_usagehour_changelist",
        ),
    ]
    context["audit"] = AuditEntry.across_tenants.select_related("who", "tenant")[:8]
    return context


def _tile(label: str, value: str, note: str, url: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note, "url": reverse(url)}


def _pool_tile() -> dict[str, str]:
    reports = [report for address in settings.PAGODA_ENGINES if (report := current_report(address))]
    total = sum(report.total for report in reports)
    if not total:
        return _tile(_("KV pool"), "—", _("no engine can be reached"), "pool_live")
    active, cached = (
        sum(getattr(account, kind) for report in reports for account in report.accounts)
        for kind in ("active", "cached")
    )
    note = _("of %(total)s blocks active; %(cached)s cached, given up when needed") % {
        "total": f"{total:,}",
        "cached": f"{cached:,}",
    }
    return _tile(_("KV pool"), f"{active:,}", note, "pool_live")
