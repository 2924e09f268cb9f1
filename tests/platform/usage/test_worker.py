"""The embedded worker: tasks over the filesystem broker, and beat in the same process."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

pytestmark = pytest.mark.slow

READ = """
import django; django.setup()
from django_celery_beat.models import PeriodicTask
from pagoda.usage.models import UsageHour
print(UsageHour.across_tenants.count(), PeriodicTask.objects.filter(task="usage.roll_up", last_run_at=None).count())
"""
SETTLE = """
import django, uuid; django.setup()
from pagoda.tenants.models import Tenant
from pagoda.usage.models import UsageRecord
from pagoda.usage.tasks import roll_up
for slug in ("acme", "rival"):
    UsageRecord.across_tenants.create(tenant=Tenant.objects.create(slug=slug, name=slug), generation_id=uuid.uuid4(),
        model="echo", purpose="chat", prompt_tokens=1, cached_tokens=0, output_tokens=1)
roll_up.delay()
"""


def test_a_task_sent_by_one_process_is_run_by_the_worker_beside_beat(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    environment = clean | {"PAGODA_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "pagoda.settings"}

    def run(*arguments):
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    run("-m", "django", "migrate", "-v", "0")
    while datetime.now(UTC).minute in (3, 4):
        time.sleep(1)  # at five past, beat has the hours rolled up itself
    command = [sys.executable, "-m", "celery", "-A", "pagoda", "worker", "-B", "-c", "1"]
    schedule = ["-s", str(tmp_path / "beat")]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [*command, *schedule], env=environment, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path
        )
    try:
        run("-c", SETTLE)
        deadline = time.monotonic() + 110
        while run("-c", READ) != ["2", "1"]:
            assert worker.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)  # another process's work: there is nothing to wait on
    finally:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(timeout=120)
    left = [each.read_text() for each in (tmp_path / "broker" / "queue").iterdir()]
    # Beat may have sent other tasks a moment ago.
    assert [message for message in left if "usage.roll_up" in message] == []
