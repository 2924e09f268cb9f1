"""Work of the worker: batches, and what they leave behind."""

from __future__ import annotations

import asyncio

from celery import shared_task

from pagoda.batches import lease, retention, runner, storage, webhooks, work


@shared_task(name="batches.run")
def run_batches() -> int:
    """Carry out the batches that wait, and those whose runner died. Returns how many were taken.

    Told when a batch is made, and every few seconds by beat: where a runner works on this machine already, or nothing
    waits, it ends at once.
    """
    with runner.only_one() as first:
        if not first or not lease.any_free():
            return 0
        with work.heeding_sigterm():
            return asyncio.run(runner.run_process(work.is_stopping))


@shared_task(name=webhooks.SEND)
def send_webhooks() -> int:
    """Told when a batch ends, and every few seconds by beat: send what is due. Safe to run side by side."""
    return webhooks.send_due()


@shared_task(name="batches.expire_files")
def expire_files() -> int:
    """Every ten minutes, by beat: delete files whose time is over, whoever's they are."""
    return retention.delete_expired()


@shared_task(name="batches.sweep")
def sweep() -> int:
    """Daily, by beat: delete files that a process left behind when it died, and deliveries of long ago."""
    return storage.sweep() + webhooks.forget_old()
