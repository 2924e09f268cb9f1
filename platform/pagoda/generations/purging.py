"""Having the engines forget deleted conversations, for certain.

An order is written in the transaction that deletes, one per engine, and removed when that engine has confirmed it. Web
processes send what is due after every report of an engine, hence within a second or two of the commit and of an
engine's return; the worker's timetable sends what nobody else did. A purge that is sent twice does no harm.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from channels.db import database_sync_to_async
from django.conf import settings
from django.utils import timezone

from pagoda.engines import connections
from pagoda.generations.models import Generation, PendingPurge
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable
from pagoda_inference.protocol import ModelInfo, PoolReport, Purge

logger = logging.getLogger(__name__)

BATCH = 500
"""Orders sent to an engine at a time."""
RETRY_S = 30.0
"""Between two tries at an engine that failed at it."""
FORGOTTEN_AFTER = timedelta(days=30)
"""When orders for an engine that is not in PAGODA_ENGINES any more are given up."""

_retry_at: dict[str, float] = {}


def order(account: str, lineages: Collection[str]) -> None:
    """Have every engine forget these lineages of an account, once the caller's transaction is committed."""
    ran_on = Generation.across_tenants.filter(lineage__in=lineages).values_list("engine", flat=True).distinct()
    engines = {*settings.PAGODA_ENGINES, *ran_on.order_by()}
    PendingPurge.objects.bulk_create(
        PendingPurge(account=account, lineage=lineage, engine=engine)
        for engine in sorted(engines)
        for lineage in lineages
    )


def due(engine: str) -> list[PendingPurge]:
    """The oldest orders of an engine."""
    return list(PendingPurge.objects.filter(engine=engine)[:BATCH])


def messages(orders: Sequence[PendingPurge]) -> Iterator[tuple[Purge, list[int]]]:
    """One message per account, and the orders it carries out."""
    by_account: dict[str, list[PendingPurge]] = defaultdict(list)
    for each in orders:
        by_account[each.account].append(each)
    for account, rows in by_account.items():
        yield Purge(account, tuple(dict.fromkeys(row.lineage for row in rows))), [row.pk for row in rows]


def confirm(ids: Sequence[int]) -> None:
    """The engine has done these. An order written for the same lineage meanwhile stays."""
    PendingPurge.objects.filter(pk__in=ids).delete()


async def follow_report(client: EngineClient, info: ModelInfo, report: PoolReport) -> None:
    """For ``connections.report_listeners``: send what is due."""
    address = connections.address_of(client)
    if time.monotonic() < _retry_at.get(address, 0):
        return
    orders = await database_sync_to_async(due)(address)
    try:
        for message, ids in messages(orders):
            await client.purge(message)
            await database_sync_to_async(confirm)(ids)
    except (EngineUnavailable, EngineRefused) as error:
        _retry_at[address] = time.monotonic() + RETRY_S
        logger.warning("engine %s did not purge %d conversations yet: %s", address, len(orders), error)


def send_all() -> int:
    """Send what is due to every engine that can be reached. Returns how many orders were carried out."""
    PendingPurge.objects.filter(created__lt=timezone.now() - FORGOTTEN_AFTER).exclude(
        engine__in=settings.PAGODA_ENGINES
    ).delete()
    return sum(_send_to(address) for address in settings.PAGODA_ENGINES)


def _send_to(address: str) -> int:
    sent = 0
    try:
        while orders := due(address):
            with connections.sync_client(address) as client:
                for message, ids in messages(orders):
                    client.purge(message)
                    confirm(ids)
                    sent += len(ids)
    except (EngineUnavailable, EngineRefused) as error:
        logger.warning("engine %s did not purge deleted conversations yet: %s", address, error)
    return sent
