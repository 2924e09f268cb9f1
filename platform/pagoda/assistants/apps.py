from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AssistantsConfig(AppConfig):
    name = "pagoda.assistants"
    label = "assistants"
    verbose_name = _("Assistants")

    def ready(self) -> None:
        from pagoda.assistants import publishing, signals  # noqa: F401  (signals register themselves)
        from pagoda.engines import connections, lifespan

        connections.report_listeners.append(publishing.follow_report)
        lifespan.on_shutdown(publishing.stop)
