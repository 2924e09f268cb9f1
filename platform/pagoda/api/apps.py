from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ApiConfig(AppConfig):
    name = "pagoda.api"
    label = "api"
    verbose_name = _("API")

    def ready(self) -> None:
        from pagoda.engines import lifespan
        from pagoda.generations import calls

        lifespan.on_startup(calls.start_up)
        lifespan.on_shutdown(calls.shut_down)
