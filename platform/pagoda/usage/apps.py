from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class UsageConfig(AppConfig):
    name = "pagoda.usage"
    label = "usage"
    verbose_name = _("Usage")
