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
}
"""The engine's causes in plain words."""


@require_GET
def live_page(request: HttpRequest) -> HttpResponse:
    columns = (
        _("Tenant"),
        _("Share of the pool"),
        _("Active"),
        _("Cached"),
        _("Held"),
        _("Reservation"),
        _("Limit"),
        _("Weight"),
        _("Running / waiting"),
        _("Hit rate"),
        _("Evictions"),
        _("Preemptions"),
    )
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
