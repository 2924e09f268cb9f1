"""Where the websocket lives."""

from django.urls import URLPattern, path

from pagoda.chat.consumer import ChatConsumer

websocket_urlpatterns: list[URLPattern] = [path("ws/v1", ChatConsumer.as_asgi())]
