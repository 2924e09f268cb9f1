from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class EnginesConfig(AppConfig):
    name = "pagoda.engines"
    label = "engines"
    verbose_name = _("Engines")

    def ready(self) -> None:
        from pagoda.engines import connections, lifespan

        lifespan.on_startup(connections.start)
        lifespan.on_shutdown(connections.stop)
