from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class GenerationsConfig(AppConfig):
    name = "pagoda.generations"
    label = "generations"
    verbose_name = _("Generations")

    def ready(self) -> None:
        from pagoda.engines import connections, lifespan
        from pagoda.generations import purging, recorder

        connections.report_listeners.append(purging.follow_report)
        lifespan.on_startup(recorder.start_up)
        lifespan.on_shutdown(recorder.shut_down)
