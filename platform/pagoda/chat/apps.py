from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ChatConfig(AppConfig):
    name = "pagoda.chat"
    label = "chat"
    verbose_name = _("Chat")

    def ready(self) -> None:
        from pagoda.chat import access_watch, erasure, hints, settlement  # noqa: F401  (two of them listen to signals)
        from pagoda.engines import lifespan

        for part in (hints, access_watch):
            lifespan.on_startup(part.start)
            lifespan.on_shutdown(part.stop)
