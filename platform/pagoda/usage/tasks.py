"""Background work of the ledger."""

from celery import shared_task

from pagoda.usage import recount
from pagoda.usage.rollup import roll_up as roll_up_hours


@shared_task(name="usage.roll_up")
def roll_up() -> int:
    """Hourly, by beat: the sums, and the meters. Safe to run at any time, twice, or side by side."""
    recount.recount()
    return roll_up_hours()
