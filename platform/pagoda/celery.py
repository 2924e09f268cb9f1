"""The Celery application: `celery -A pagoda worker` (with `-B` where one process does both)."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pagoda.settings")

app = Celery("pagoda")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
