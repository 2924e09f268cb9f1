"""What the tests of the API ask for, and how they look behind it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from channels.db import database_sync_to_async

from pagoda.engines import connections
from pagoda.generations.models import Generation
from pagoda.usage.models import OpenHold, UsageRecord

QUESTION = "What is a pagoda?"


def chat(question: str = QUESTION, **fields: Any) -> dict[str, Any]:
    """The body of a greedy chat completion."""
    return {"model": "echo", "messages": [{"role": "user", "content": question}], "temperature": 0} | fields


def text(prompt: Any = "Once upon a time", **fields: Any) -> dict[str, Any]:
    """The body of a greedy completion."""
    return {"model": "echo", "prompt": prompt, "temperature": 0} | fields


async def chunks_of(stream: Any) -> list[Any]:
    """All of a stream."""
    return [chunk async for chunk in stream]


def said(chunks: list[Any], index: int = 0) -> str:
    """The text of one choice of a streamed chat completion."""
    return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index)


async def blocks_in_use(engine: str, tenant: Any) -> int:
    """Blocks that running answers of the tenant hold."""
    report = await anext(aiter((await connections.get_client(engine)).watch(0)))
    return sum(account.active for account in report.accounts if account.id == str(tenant.pk))


async def has_written(engine: str, tenant: Any) -> bool:
    """Whether an answer of the tenant has its first token."""
    report = await anext(aiter((await connections.get_client(engine)).watch(0)))
    return any(account.tokens_out for account in report.accounts if account.id == str(tenant.pk))


async def until(condition: Any, within_s: float = 60.0) -> float:
    """Seconds until the coroutine function gives something true. Raises TimeoutError."""
    begun = time.monotonic()
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110  (what it looks at tells nobody)
            await asyncio.sleep(0.02)
    return time.monotonic() - begun


def generations(tenant: Any) -> list[Generation]:
    return list(Generation.across_tenants.filter(tenant=tenant).order_by("created"))


def records(tenant: Any) -> list[UsageRecord]:
    return list(UsageRecord.across_tenants.filter(tenant=tenant).select_related("api_key").order_by("created"))


def holds(tenant: Any) -> int:
    return OpenHold.across_tenants.filter(tenant=tenant).count()


read = database_sync_to_async
