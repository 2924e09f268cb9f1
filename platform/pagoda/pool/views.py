"""`/admin/pool/live/`: the pool at work, and the numbers behind the page."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_GET

from pagoda.pool.live import live

TEXTS = (
    gettext_noop("active"),
    gettext_noop("cached"),
    gettext_noop("free"),
    gettext_noop("reservation"),
    gettext_noop("limit"),
    gettext_noop("blocks"),
    gettext_noop("tokens"),
    gettext_noop("MiB"),
    gettext_noop("hit rate"),
    gettext_noop("adds up"),
    gettext_noop("does not add up"),
    gettext_noop("not reachable"),
    gettext_noop("updated"),
    gettext_noop("no answer from the server"),
    gettext_noop("shared"),
    gettext_noop("unused"),
    gettext_noop("weight"),
    gettext_noop("waited"),
    gettext_noop("of"),
    gettext_noop("Total"),
)
"""What the page's script writes, translated."""

EXPLAINED = {
    "own_lru": gettext_noop("for its own newer prompts"),
    "reclaimed": gettext_noop("to give another tenant its reservation"),
    "over_share": gettext_noop("because it held more than its share"),
    "limit_lowered": gettext_noop("because its limit was lowered"),
    "recompute": gettext_noop("to be computed again"),
    "swap": gettext_noop("to be brought back from memory"),
    "evicted": gettext_noop("Cached blocks evicted"),
    "preempted": gettext_noop("Running answers set aside"),
    "for others": gettext_noop("for others"),
    "demoted": gettext_noop("Moved out of the pool"),
    "promoted": gettext_noop("Brought back"),
    "demoted to host": gettext_noop("to host memory"),
    "demoted to disk": gettext_noop("to disk"),
    "promoted from host": gettext_noop("from host memory"),
    "promoted from disk": gettext_noop("from disk"),
}
"""The engine's causes in plain words."""


def _columns() -> dict[str, str]:
    """By name, in the order of the table. Those of tiers are shown where the engine has them."""
    return {
        "name": _("Tenant"),
        "share": _("Share of the pool"),
        "active": _("Active"),
        "cached": _("Cached"),
        "held": _("Held"),
        "reservation": _("Reservation"),
        "limit": _("Limit"),
        "work": _("Running / waiting"),
        "hits": _("Hit rate"),
        "host": _("Host memory"),
        "disk": _("Disk"),
        "evictions": _("Evictions"),
        "preemptions": _("Preemptions"),
    }


@require_GET
def live_page(request: HttpRequest) -> HttpResponse:
    columns = _columns()
    context = {
        **admin.site.each_context(request),
        "title": _("KV pool"),
        "data": live(),
        "data_url": reverse("pool_live_data"),
        "texts": {text: _(text) for text in TEXTS}
        | {name: _(text) for name, text in EXPLAINED.items()}
        | {"columns": columns},
        "columns": columns,
    }
    return render(request, "pool/live.html", context)


@require_GET
def live_data(request: HttpRequest) -> JsonResponse:
    return JsonResponse(live(), headers={"Cache-Control": "no-store"})
