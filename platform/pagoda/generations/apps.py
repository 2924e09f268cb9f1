from django.apps import AppConfig


class GenerationsConfig(AppConfig):
    name = "pagoda.generations"
    label = "generations"
