from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OperationsConfig(AppConfig):
    name = "pagoda.operations"
    label = "operations"
    verbose_name = _("Operations")

    def ready(self) -> None:
        from prometheus_client import REGISTRY

        from pagoda.operations.metrics import PoolCollector

        REGISTRY.register(PoolCollector())
