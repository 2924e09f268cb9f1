"""Who may see a page, and for which tenant it works."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from pagoda.tenants.memberships import memberships_of
from pagoda.tenants.models import Membership, Role, User
from pagoda.tenants.scoping import tenant_scope

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]

SESSION_KEY = "tenant"


class TenantRequest(HttpRequest):
    """A request whose tenant and role are settled."""

    user: User
    membership: Membership
    administered: list[Membership]


def tenant_admin_required(view: Callable[Concatenate[TenantRequest, P], HttpResponseBase]) -> View[P]:
    """Run the view in the scope of a tenant that the signed-in person administers.

    With several, ``?tenant=<slug>`` chooses, and the session remembers. Operators have no way in by being operators.
    """

    @wraps(view)
    @login_required
    def guarded(request: Any, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        administered = [each for each in memberships_of(request.user) if each.role == Role.ADMIN]
        if not administered:
            raise PermissionDenied(_("Only a tenant's admins can see this page."))
        wanted = request.GET.get("tenant") or request.session.get(SESSION_KEY)
        chosen = next((each for each in administered if each.tenant.slug == wanted), administered[0])
        request.session[SESSION_KEY] = chosen.tenant.slug
        request.membership, request.administered = chosen, administered
        with tenant_scope(chosen.tenant_id):
            return view(request, *args, **kwargs)

    return guarded
