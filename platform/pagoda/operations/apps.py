from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "pagoda.operations"
    label = "operations"
