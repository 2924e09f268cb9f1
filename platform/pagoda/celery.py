"""The Celery application: `celery -A pagoda worker` (with `-B` where one process does both)."""

import os
from pathlib import Path
from typing import Any

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pagoda.settings")

FOLDERS = ("data_folder_in", "data_folder_out", "control_folder")

app = Celery("pagoda")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@app.on_after_configure.connect
def make_broker_folders(sender: Celery, **_: Any) -> None:
    """The filesystem broker expects its folders; whoever sends or takes first makes them, for their owner alone."""
    for name in FOLDERS:
        if folder := sender.conf.broker_transport_options.get(name):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
