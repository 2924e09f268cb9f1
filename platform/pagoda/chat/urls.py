from django.urls import URLPattern, path

from pagoda.chat.views import chat

urlpatterns: list[URLPattern] = [path("", chat, name="chat")]
