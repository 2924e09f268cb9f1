from django.urls import path

from pagoda.usage import views

urlpatterns = [
    path("usage/", views.usage, name="usage"),
    path("usage/export.csv", views.export_csv, name="usage_export"),
]
