"""Where each address leads. `/` is the chat, `/admin/` the operators' site, `/ws/v1` (in asgi.py) the websocket."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.account.urls")),
    path("", include("pagoda.tenants.urls")),
    path("", include("pagoda.operations.urls")),
    path("", include("pagoda.chat.urls")),
]
