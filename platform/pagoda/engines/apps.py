from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class EnginesConfig(AppConfig):
    name = "pagoda.engines"
    label = "engines"
    verbose_name = _("Engines")
