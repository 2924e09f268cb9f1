"""Bringing the published prefixes to the engines: at once after a change, at every connection, and whenever a report
shows that an engine is behind; and keeping what each engine says of them."""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import IntegrityError, transaction

from pagoda.assistants.models import PrefixVersion, Publication, PublishedPrefix
from pagoda.engines import connections
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable
from pagoda_inference.protocol import ChatMessage, ModelInfo, PoolReport, Prefix, Publish, Published
from pagoda_inference.protocol import PublishedPrefix as InEngine

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""How long a page waits for an engine to compute the blocks. A longer computation goes on without it."""
RETRY_S = 30.0
"""Between two tries to publish to an engine that failed at it."""


@dataclass(frozen=True)
class Pushed:
    """What became of a push to one engine. ``refused``: (name, reason) of prefixes that it does not keep."""

    address: str
    problem: str = ""
    unreachable: bool = False
    refused: tuple[tuple[str, str], ...] = ()


_last: ContextVar[tuple[Pushed, ...]] = ContextVar("pagoda_last_publication", default=())


def build() -> Publish:
    """The full list. The version is read first: a change in between is sent again under its own number."""
    version = PrefixVersion.current()
    active = PublishedPrefix.objects.filter(active=True).order_by("created", "pk")
    turns = ((each.wire_id, (ChatMessage("system", each.text),)) for each in active)
    return Publish(version, tuple(Prefix(id, messages=messages) for id, messages in turns))


def push() -> tuple[Pushed, ...]:
    """Send the list to every engine and wait for the answers, TIMEOUT_S per engine at most. Never raises for one."""
    results = tuple(_push_to(address) for address in settings.PAGODA_ENGINES)
    _last.set(results)
    return results


def last_push() -> tuple[Pushed, ...]:
    """The results of the push that ran last in this context, such as after the commit of the present request."""
    return _last.get()


def _push_to(address: str) -> Pushed:
    try:
        with connections.sync_client(address, TIMEOUT_S) as client:
            message: Publish | None = build()
            while message is not None:
                answer = client.publish(message)
                message = settle(address, message, answer)
    except EngineUnavailable:
        return Pushed(address, "unreachable", unreachable=True)
    except EngineRefused as refusal:
        return Pushed(address, refusal.error.message)
    names = {each.wire_id: each.name for each in PublishedPrefix.objects.filter(active=True)}
    refused = ((names.get(each.id, each.id), each.error.message) for each in answer.prefixes if each.error)
    return Pushed(address, refused=tuple(refused))


def settle(address: str, message: Publish, answer: Published) -> Publish | None:
    """Keep what the engine says. The list to send again where it holds another one than the database; else None."""
    if not answer.applied:
        now = build()
        if answer.version > now.version or (
            answer.version == now.version and _ids(answer.prefixes) != _ids(now.prefixes)
        ):
            # The engine has this number or a later one from another database, such as one before a restore.
            logger.warning("engine %s is ahead of the database: prefix version raised", address)
            PrefixVersion.raise_above(answer.version)
            return build()
        if answer.version < now.version:
            return now if now.version > message.version else None
    try:
        _remember(address, answer.prefixes)
    except IntegrityError:
        logger.info("a prefix was deleted while engine %s published it", address)
    return None


def is_computing(said: InEngine | Publication) -> bool:
    """Whether an engine has accepted a prefix and is not done with it."""
    return not said.error and said.tokens > 0 and said.blocks == 0


def _ids(prefixes: tuple[Prefix, ...] | tuple[InEngine, ...]) -> set[str]:
    return {each.id for each in prefixes}


@transaction.atomic
def _remember(address: str, prefixes: tuple[InEngine, ...]) -> None:
    known = {each.wire_id: each for each in PublishedPrefix.objects.all()}
    kept = [(known[each.id], each) for each in prefixes if each.id in known]
    for prefix, said in kept:
        Publication.objects.update_or_create(
            prefix=prefix,
            engine=address,
            defaults={
                "tokens": said.tokens,
                "blocks": said.blocks,
                "error": said.error.message if said.error else "",
            },
        )
    Publication.objects.filter(engine=address).exclude(prefix__in=[prefix for prefix, _ in kept]).delete()


# --- following the reports --------------------------------------------------------------------------------------------

_heard: dict[str, tuple[str, int]] = {}
"""Engine -> its instance and the version that this process has its answer about."""
_retry_at: dict[str, float] = {}
_publishing: dict[str, asyncio.Task[None]] = {}


async def follow_report(client: EngineClient, info: ModelInfo, report: PoolReport) -> None:
    """For ``connections.report_listeners``. Publishing takes a while: it does not hold up the reports."""
    address = connections.address_of(client)
    if address in _publishing or time.monotonic() < _retry_at.get(address, 0):
        return
    wanted = await database_sync_to_async(_version_for)(report.published_version)
    if not wanted or (report.published_version == wanted and _heard.get(address) == (report.instance, wanted)):
        return
    _publishing[address] = asyncio.create_task(_publish(client, address, report.instance), name=f"publish to {address}")


async def stop() -> None:
    """Run when the server stops."""
    tasks = list(_publishing.values())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for state in (_publishing, _heard, _retry_at):
        state.clear()


async def _publish(client: EngineClient, address: str, instance: str) -> None:
    try:
        message: Publish | None = await database_sync_to_async(build)()
        while message is not None:
            answer = await client.publish(message)
            message = await database_sync_to_async(settle)(address, message, answer)
        if not any(is_computing(each) for each in answer.prefixes):
            _heard[address] = (instance, answer.version)
    except Exception as error:
        _retry_at[address] = time.monotonic() + RETRY_S
        if isinstance(error, EngineUnavailable | EngineRefused):
            logger.warning("engine %s did not take the published prefixes: %s", address, error)
        else:
            logger.exception("publishing to the engine %s failed", address)
    finally:
        _publishing.pop(address, None)


def _version_for(reported: int) -> int:
    version = PrefixVersion.current()
    return PrefixVersion.raise_above(reported) if reported > version else version
