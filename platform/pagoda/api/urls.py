"""Below `/v1/`: the API, and its own answer to every address that it does not have."""

from django.http import HttpRequest, HttpResponse
from django.urls import path, re_path

from pagoda.api.errors import for_status
from pagoda.api.v1 import api


async def unknown(request: HttpRequest, **_: str) -> HttpResponse:
    return for_status(404).response()


urlpatterns = [
    path("v1/", api.urls),
    re_path(r"^(?:/*)v1(?:/.*)?$", unknown),
]
