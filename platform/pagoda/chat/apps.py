from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "pagoda.chat"
    label = "chat"
