from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PoolConfig(AppConfig):
    name = "pagoda.pool"
    label = "pool"
    verbose_name = _("Pool")
