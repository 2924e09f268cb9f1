"""The page of the chat: one shell, which the front end fills over the websocket."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_GET

from pagoda.chat.objects import Json, tenant_as_json
from pagoda.chat.requests import CONTENT_CHARACTERS
from pagoda.tenants.memberships import memberships_of
from pagoda.tenants.models import Membership, Role, User

WEBSOCKET_PATH = "/ws/v1"


@require_GET
@never_cache
@ensure_csrf_cookie
@login_required
def chat(request: HttpRequest) -> HttpResponse:
    """The shell for a member; an operator who is none is sent to the admin."""
    user = request.user
    assert isinstance(user, User)
    memberships = memberships_of(user)
    if not memberships:
        return redirect("admin:index") if user.is_staff else render(request, "chat/no_tenant.html", status=403)
    if not settings.PAGODA_VITE_DEV and not (settings.PAGODA_FRONTEND_DIST / "manifest.json").exists():
        return render(request, "chat/not_built.html", status=503)
    return render(request, "chat/chat.html", {"boot": _boot(request, user, memberships)})


def _boot(request: HttpRequest, user: User, memberships: list[Membership]) -> Json:
    """What the front end knows before its socket is open."""
    first = memberships[0]
    administers = any(each.role == Role.ADMIN for each in memberships)
    return {
        "ws_path": WEBSOCKET_PATH,
        "member": {"id": str(user.pk), "email": user.email, "name": user.name, "role": first.role},
        "tenant": tenant_as_json(first.tenant),
        "language": get_language(),
        "csrf_token": get_token(request),
        "login_url": reverse("account_login"),
        "logout_url": reverse("account_logout"),
        "members_url": reverse("members") if administers else None,
        "admin_url": reverse("admin:index") if user.is_staff else None,
        "max_message_chars": CONTENT_CHARACTERS,
    }
