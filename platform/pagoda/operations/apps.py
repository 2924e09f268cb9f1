from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OperationsConfig(AppConfig):
    name = "pagoda.operations"
    label = "operations"
    verbose_name = _("Operations")

    def ready(self) -> None:
        from prometheus_client import REGISTRY, disable_created_metrics

        from pagoda.operations import api_metrics
        from pagoda.operations.metrics import PoolCollector

        disable_created_metrics()  # a second series for each, that nobody reads
        for collector in (PoolCollector(), api_metrics.requests, api_metrics.seconds):
            REGISTRY.register(collector)
