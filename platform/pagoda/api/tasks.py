"""Background work of the API."""

from celery import shared_task

from pagoda.api import idempotency


@shared_task(name="api.forget_old_calls")
def forget_old_calls() -> int:
    """Hourly, by beat. Safe to run at any time, twice, or side by side."""
    return idempotency.forget_old()
