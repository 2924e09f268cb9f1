"""Follow a generation as a socket does, and look at its row."""

from __future__ import annotations

from typing import Any

from channels.db import database_sync_to_async

from pagoda.generations import stream
from pagoda.generations.models import Generation


async def follow(generation: Generation, after_seq: int = 0) -> tuple[str, list[dict[str, Any]]]:
    """A generation's text put together from its events, and the events."""
    text, seq, events = "", after_seq, []
    async for event in stream.follow(generation.tenant_id, generation.pk, after_seq):
        events.append(event)
        if event["type"] == "generation.snapshot":
            text, seq = event["text"], event["seq"]
        elif event["type"] != "generation.finished":
            assert event["seq"] == seq + 1
            text, seq = text + event.get("text", ""), event["seq"]
    return text, events


async def stored(generation: Generation) -> Generation:
    """The row as it is now."""
    return await database_sync_to_async(Generation.across_tenants.get)(pk=generation.pk)
