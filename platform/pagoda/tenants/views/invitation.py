"""`/invitations/<token>/`: where an invitation's link leads."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from pagoda.tenants import invitations
from pagoda.tenants.forms import RegisterForm
from pagoda.tenants.models import Invitation, User

BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Join, make an account, or sign in first: whichever this person needs."""
    found = invitations.find(token)
    if found is None:
        return render(request, "tenants/invitation_closed.html", status=410)
    if isinstance(request.user, User):
        return _join(request, found, request.user)
    if User.objects.filter(email=found.email).exists():
        return render(request, "tenants/invitation.html", {"invitation": found, "step": "sign_in"})
    return _register(request, found)


def _join(request: HttpRequest, found: Invitation, user: User) -> HttpResponse:
    if user.email != found.email:
        return render(request, "tenants/invitation.html", {"invitation": found, "step": "other_person"}, status=403)
    if request.method != "POST":
        return render(request, "tenants/invitation.html", {"invitation": found, "step": "join"})
    try:
        invitations.accept(found, user)
    except invitations.InvitationRefused:
        return render(request, "tenants/invitation_closed.html", status=410)
    return redirect("/")


def _register(request: HttpRequest, found: Invitation) -> HttpResponse:
    form = RegisterForm(request.POST or None, email=found.email)
    if request.method == "POST" and form.is_valid():
        try:
            user = invitations.register(found, form.cleaned_data["name"], form.cleaned_data["password"])
        except invitations.InvitationRefused as refusal:
            form.add_error(None, str(refusal))
        else:
            login(request, user, backend=BACKEND)
            return redirect("/")
    context = {"invitation": found, "step": "register", "form": form}
    return render(request, "tenants/invitation.html", context, status=422 if form.errors else 200)
