"""What the platform asks of the pool between steps: quotas, published prefixes, purges, reports."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pagoda_inference import logs
from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.model.backend import Backend
from pagoda_inference.protocol import (
    AccountsSet,
    Error,
    PoolReport,
    Publish,
    Published,
    PublishedPrefix,
    Purge,
    Purged,
    SetAccounts,
)
from pagoda_inference.scheduling.publications import Publication
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.scheduling.sequence import Request

logger = logging.getLogger(__name__)
T = TypeVar("T")

SAVE_TIMEOUT_S = 3.0
"""How long a stop copies cached blocks to the tiers below."""


class PoolDesk:
    """Used from the engine's thread only. ``end``: tells whose request an edit ended, and why."""

    def __init__(self, scheduler: Scheduler, *, end: Callable[[Request, Error], None]) -> None:
        self._scheduler = scheduler
        self._end = end
        self._published_version = 0
        self._publishing: list[tuple[Publish, list[Publication], Future[Published]]] = []

    def set_accounts(self, message: SetAccounts) -> AccountsSet:
        """Replace all accounts. An old version and a refused list change nothing."""
        accounts = self._scheduler.pool.accounts
        if message.version <= accounts.version:
            return AccountsSet(accounts.version, applied=False, scaled=accounts.scaled)
        try:
            ended = self._scheduler.set_accounts(message.accounts, message.version, message.pool_blocks)
        except AccountsRefused as refusal:
            return AccountsSet(accounts.version, applied=False, error=refusal.error)
        for request, error in ended:
            self._end(request, error)
        logs.event(logger, "accounts_set", version=message.version, accounts=len(message.accounts), ended=len(ended))
        if accounts.scaled < 1:
            logs.event(logger, "reservations_scaled", factor=round(accounts.scaled, 4), total_blocks=accounts.total)
        return AccountsSet(accounts.version, applied=True, scaled=accounts.scaled)

    def publish(self, message: Publish, answer: Future[Published]) -> None:
        """Replace all published prefixes. ``answer`` comes when the new ones are computed; ``settle`` gives it."""
        if message.version <= self._published_version:
            _give(answer, Published(self._published_version, applied=False, prefixes=self._prefixes()))
            return
        self._published_version = message.version
        prefixes = [(prefix.id, prefix.token_ids or ()) for prefix in message.prefixes]
        publications, ended = self._scheduler.publish(prefixes, time.monotonic())
        for request, error in ended:
            self._end(request, error)
        logs.event(logger, "published", version=message.version, prefixes=len(prefixes), ended=len(ended))
        self._publishing.append((message, publications, answer))
        self.settle()

    def settle(self) -> None:
        """Answer whoever published, once everything of theirs is computed (or replaced by a later list)."""
        for waiting in self._publishing[:]:
            message, publications, answer = waiting
            if any(publication.computing for publication in publications):
                continue
            self._publishing.remove(waiting)
            _give(answer, Published(message.version, applied=True, prefixes=_told(publications)))

    def purge(self, message: Purge, answer: Future[Purged]) -> None:
        """Drop what only these conversations used. ``answer`` comes when it is gone from the tiers, too."""
        blocks = stored = 0
        for lineage in message.lineages:
            here, below = self._scheduler.purge(message.account, lineage)
            blocks, stored = blocks + here, stored + below

        def gone() -> None:
            _give(answer, Purged(blocks, stored))

        transfers = self._scheduler.transfers
        if stored and transfers is not None:
            transfers.tiers.after(gone)
        else:
            gone()

    def report(self, instance: str, step: int, backend: Backend) -> PoolReport:
        """The pool now."""
        report = self._scheduler.report()
        accounts = self._scheduler.pool.accounts
        return PoolReport(
            instance=instance,
            step=step,
            time=time.time(),
            total=report.total,
            free=report.free,
            block_size=backend.block_size,
            bytes_per_block=backend.bytes_per_block,
            accounts_version=accounts.version,
            accounts=tuple(report.accounts),
            published_version=self._published_version,
            tier_totals=report.tier_totals,
            tier_events=self._tier_events(),
            scaled=accounts.scaled,
            alerts=report.alerts,
        )

    def close(self) -> None:
        """The loop ends: what is cached goes to the tiers below, and whoever waits is told."""
        transfers = self._scheduler.transfers
        if transfers is not None and transfers.enabled:
            deadline = time.monotonic() + SAVE_TIMEOUT_S
            transfers.save_all(lambda: time.monotonic() > deadline)
            transfers.tiers.flush(max(0.5, deadline - time.monotonic()))
            transfers.tiers.close()
        for _, publications, answer in self._publishing:
            _give(answer, Published(self._published_version, applied=False, prefixes=_told(publications)))
        self._publishing.clear()

    def _tier_events(self) -> dict[str, dict[str, int]]:
        transfers = self._scheduler.transfers
        if transfers is None or not transfers.enabled:
            return {}
        return {tier: dataclasses.asdict(counters) for tier, counters in transfers.tiers.counters.items()}

    def _prefixes(self) -> tuple[PublishedPrefix, ...]:
        return _told(list(self._scheduler.publications))


def _give(answer: Future[T], value: T) -> None:
    """Answer, unless nobody waits any longer."""
    if answer.set_running_or_notify_cancel():
        answer.set_result(value)


def _told(publications: list[Publication]) -> tuple[PublishedPrefix, ...]:
    return tuple(
        PublishedPrefix(publication.id, len(publication.tokens), publication.blocks, publication.error)
        for publication in publications
    )
