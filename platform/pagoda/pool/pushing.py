"""Bringing the quotas to the engines: at once after a change, at every connection, and whenever a report shows that an
engine is behind."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass

from channels.db import database_sync_to_async
from django.conf import settings

from pagoda.engines import connections
from pagoda.pool import capacity
from pagoda.pool.accounts import build_accounts
from pagoda.pool.models import QuotaVersion
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable
from pagoda_inference.protocol import ModelInfo, PoolReport, SetAccounts

logger = logging.getLogger(__name__)

TIMEOUT_S = 1.5


@dataclass(frozen=True)
class Pushed:
    """What became of a push to one engine. ``problem`` is '' where the version is in force."""

    address: str
    problem: str = ""
    unreachable: bool = False


_last: ContextVar[tuple[Pushed, ...]] = ContextVar("pagoda_last_push", default=())


def push() -> tuple[Pushed, ...]:
    """Send the quotas to every engine and wait for the answers; TIMEOUT_S per engine that does not answer.

    Never raises for an engine: one that cannot be reached gets the quotas when it connects again.
    """
    results = tuple(_push_to(address) for address in settings.PAGODA_ENGINES)
    _last.set(results)
    return results


def last_push() -> tuple[Pushed, ...]:
    """The results of the push that ran last in this context, such as after the commit of the present request."""
    return _last.get()


def _push_to(address: str) -> Pushed:
    try:
        with connections.sync_client(address, TIMEOUT_S) as client:
            info = client.models()
            capacity.remember(address, info)
            accounts = build_accounts(address, info)
            answer = client.set_accounts(accounts)
            if not answer.applied and answer.error is None and not _in_force(accounts, client.watch_once()):
                # The engine has this number or a later one from another database, such as one before a restore.
                logger.warning("engine %s is ahead of the database: quota version raised", address)
                QuotaVersion.raise_above(answer.version)
                answer = client.set_accounts(build_accounts(address, info))
            capacity.note_scaling(address, answer)
    except EngineUnavailable:
        return Pushed(address, "unreachable", unreachable=True)
    except EngineRefused as refusal:
        return Pushed(address, refusal.error.message)
    return Pushed(address, answer.error.message if answer.error else "")


def _in_force(accounts: SetAccounts, report: PoolReport) -> bool:
    """Whether the engine works with these very numbers: somebody else brought them."""
    scaled = sum(account.reservation for account in accounts.accounts) > report.total
    wanted = {
        account.id: (
            None if scaled else account.reservation,
            report.total if account.limit is None else account.limit,
            account.weight,
        )
        for account in accounts.accounts
    }
    actual = {
        account.id: (None if scaled else account.reservation, account.limit, account.weight)
        for account in report.accounts
        if account.id != capacity.PUBLIC
    }
    return report.accounts_version == accounts.version and actual == wanted


async def introduce(client: EngineClient, info: ModelInfo) -> None:
    """For ``connections.before_admission``: an engine serves nobody it has not been told of."""
    address = connections.address_of(client)

    def build() -> SetAccounts:
        capacity.remember(address, info)
        return build_accounts(address, info)

    await _set(client, address, await database_sync_to_async(build)())


async def follow_report(client: EngineClient, info: ModelInfo, report: PoolReport) -> None:
    """For ``connections.report_listeners``: push again where the report's version is not the database's."""
    wanted = await database_sync_to_async(_version_for)(report.accounts_version)
    if wanted == report.accounts_version:
        return
    address = connections.address_of(client)
    await _set(client, address, await database_sync_to_async(build_accounts)(address, info))


async def _set(client: EngineClient, address: str, accounts: SetAccounts) -> None:
    answer = await client.set_accounts(accounts)
    if answer.error is not None:
        logger.error("engine %s refused quotas of version %d: %s", address, accounts.version, answer.error.message)
    await database_sync_to_async(capacity.note_scaling)(address, answer)


def _version_for(reported: int) -> int:
    version = QuotaVersion.current()
    return QuotaVersion.raise_above(reported) if reported > version else version
