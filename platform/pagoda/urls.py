"""Where each address leads. `/` is the chat, `/admin/` the operators' site, `/ws/v1` (in asgi.py) the websocket."""

from typing import NoReturn

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.urls import include, path


def not_offered(request: HttpRequest) -> NoReturn:
    raise Http404


urlpatterns = [
    path("admin/pool/", include("pagoda.pool.urls")),
    path("admin/", admin.site.urls),
    # A person's address is the one they were invited by: there is no page to change it.
    path("accounts/email/", not_offered),
    path("accounts/", include("allauth.account.urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("pagoda.api.urls")),
    path("", include("pagoda.tenants.urls")),
    path("", include("pagoda.usage.urls")),
    path("", include("pagoda.assistants.urls")),
    path("", include("pagoda.operations.urls")),
    path("", include("pagoda.chat.urls")),
]
