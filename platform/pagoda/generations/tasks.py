"""Background work for what engines must be told."""

from celery import shared_task

from pagoda.generations import purging


@shared_task(name="generations.send_purges")
def send_purges() -> int:
    """Every few minutes, by beat. Safe to run at any time, twice, or side by side."""
    return purging.send_all()
