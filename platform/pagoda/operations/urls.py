"""Addresses for machines: health and metrics."""

from django.urls import URLPattern, path

from pagoda.operations import views

urlpatterns: list[URLPattern] = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("metrics", views.metrics, name="metrics"),
]
