from django.urls import URLPattern, path, re_path

from pagoda.chat.views import chat

# A conversation has an address of its own; the page finds its messages over the websocket, or that there are none.
urlpatterns: list[URLPattern] = [path("", chat, name="chat"), re_path(r"^c/[^/]+/?$", chat)]
