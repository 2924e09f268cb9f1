from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PoolConfig(AppConfig):
    name = "pagoda.pool"
    label = "pool"
    verbose_name = _("Pool")

    def ready(self) -> None:
        from pagoda.engines import connections
        from pagoda.pool import pushing, signals  # noqa: F401  (signals register themselves)

        connections.before_admission.append(pushing.introduce)
        connections.report_listeners.append(pushing.follow_report)
