"""The ASGI application: HTTP by Django, websockets by Channels, and the server's start and stop.

uvicorn runs the lifespan protocol on the loop that serves requests; the engines' clients and the recorders live on it.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pagoda.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

# The applications are loaded from here on: these modules import models.
from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from pagoda.api.application import PREFIX, with_api  # noqa: E402
from pagoda.chat.routing import websocket_urlpatterns  # noqa: E402
from pagoda.engines.lifespan import lifespan  # noqa: E402
from pagoda.operations.api_metrics import measured  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": measured(with_api(django_application), PREFIX),
        "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
        "lifespan": lifespan,
    }
)
