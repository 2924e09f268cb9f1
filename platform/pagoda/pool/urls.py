"""Below `/admin/`, and before the admin's own addresses."""

from django.contrib import admin
from django.urls import path

from pagoda.pool import views

urlpatterns = [
    path("live/", admin.site.admin_view(views.live_page), name="pool_live"),
    path("live/data/", admin.site.admin_view(views.live_data), name="pool_live_data"),
]
