"""Health for load balancers and supervisors, metrics for collectors."""

from __future__ import annotations

import hmac
import ipaddress

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from pagoda.operations.readiness import readiness


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers. It checks nothing else: a restart would not mend what it does not break."""
    return JsonResponse({"status": "up"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when this process can serve, else 503; either way the reasons."""
    checks = readiness()
    ready = all(check.ok for check in checks)
    body = {"ready": ready, "checks": {check.name: {"ok": check.ok, "detail": check.detail} for check in checks}}
    response = JsonResponse(body, status=200 if ready else 503)
    # Not ready is an answer, not an error: without this Django logs one at every look.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format, for this machine or for whoever has PAGODA_METRICS_TOKEN."""
    if not _may_read_metrics(request):
        return HttpResponse(
            "The metrics are for this machine. Set PAGODA_METRICS_TOKEN and send it as a bearer token.\n",
            status=403,
            content_type="text/plain; charset=utf-8",
        )
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


def _may_read_metrics(request: HttpRequest) -> bool:
    """With a token set it alone counts: behind a proxy on this machine everybody seems to come from loopback."""
    token = settings.PAGODA_METRICS_TOKEN
    if token:
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(sent.encode(), token.encode())
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
