"""Follow a generation: the one call behind every socket, whichever process records it.

What is stored comes from the database, what came after it from the engine, and the end from the database again: a
client that hears ``finished`` finds the result there.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from channels.db import database_sync_to_async

from pagoda.engines import connections
from pagoda.generations import recorder
from pagoda.generations.models import Generation
from pagoda.generations.recording import storable
from pagoda.tenants.scoping import tenant_scope
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import Delta, Finished, Started

SUBMITTED_WITHIN_S = 5.0
PAUSE_S = (0.05, 0.1, 0.2, 0.5)
"""Between two looks at a generation that is neither in the engine nor final: shorter at first."""


class GenerationUnknown(Exception):
    """No such generation in this tenant."""


async def follow(
    tenant_id: uuid.UUID, generation_id: uuid.UUID, after_seq: int = 0
) -> AsyncGenerator[dict[str, Any], None]:
    """The generation's events after ``after_seq`` as docs/websocket.md has them (without ``message_id``).

    Ends after ``finished``. Nothing is lost or doubled whatever happens to the recorder meanwhile; when the engine
    dies, ``finished`` says interrupted. Waits as its reader waits: events pile up in the engine, not here. Raises
    GenerationUnknown.
    """
    seq, waits, beginning = after_seq, 0, True
    while True:
        generation = await database_sync_to_async(_read)(tenant_id, generation_id)
        if generation.settled:
            for event in _ending(generation, seq):
                yield event
            return
        if seq < generation.seq or (beginning and seq > recorder.current().newest_seq(generation)):
            yield _snapshot(generation, generation.seq)
            seq = generation.seq
        beginning, before = False, seq
        async with aclosing(_from_engine(generation, seq)) as events:
            async for event in events:
                seq = event["seq"]
                yield event
        waits = 0 if seq > before else waits + 1
        await recorder.current().wait_settled(generation_id, PAUSE_S[min(waits, len(PAUSE_S) - 1)])


async def wait_settled(tenant_id: uuid.UUID, generation_id: uuid.UUID) -> dict[str, Any]:
    """The ``finished`` event, as soon as the result is committed. Raises GenerationUnknown."""
    while True:
        generation = await database_sync_to_async(_read)(tenant_id, generation_id)
        if generation.settled:
            return _ending(generation, generation.seq)[-1]
        await recorder.current().wait_settled(generation_id, PAUSE_S[-1])


async def stop(tenant_id: uuid.UUID, generation_id: uuid.UUID) -> None:
    """Ask for a generation's end, wherever it is recorded. Its ``finished`` event is the receipt.

    The wish is stored first: should the recorder or the connection die now, whoever takes over carries it out. Raises
    GenerationUnknown; does nothing when the generation has ended.
    """
    generation = await database_sync_to_async(_ask_to_stop)(tenant_id, generation_id)
    if generation.settled or await recorder.current().stop(generation_id):
        return
    try:
        client = await connections.get_client(generation.engine)
        await client.cancel(str(generation.pk), generation.account)
    except (EngineUnavailable, EngineRefused):
        return


async def _from_engine(generation: Generation, after_seq: int) -> AsyncGenerator[dict[str, Any], None]:
    """Started and deltas; ends silently where the engine has no more to say: at the end, or when it cannot be asked."""
    await recorder.current().wait_submitted(generation.pk, SUBMITTED_WITHIN_S)
    try:
        client = await connections.get_client(generation.engine)
    except EngineUnavailable:
        return
    subscription = client.attach(str(generation.pk), generation.account, after_seq)
    try:
        async for event in subscription:
            if isinstance(event, Delta):
                yield _event("delta", generation, event.seq, text=storable(event.text))
            elif isinstance(event, Started):
                tokens = {"prompt_tokens": event.prompt_tokens, "cached_tokens": event.cached_tokens}
                yield _event("started", generation, event.seq, **tokens)
            elif isinstance(event, Finished):
                return
    except (EngineRefused, EngineUnavailable):
        return
    finally:
        subscription.close()


def _ending(generation: Generation, seq: int) -> list[dict[str, Any]]:
    """What a client at ``seq`` needs of a settled generation."""
    finished = _event(
        "finished",
        generation,
        generation.seq,
        state=generation.state,
        finish_reason=generation.finish_reason or None,
        usage=generation.usage(),
        error=generation.error,
    )
    if generation.state == Generation.State.INTERRUPTED:
        # Somebody may have heard more from the engine than its recorder: the stored text is what counts.
        return [_snapshot(generation, generation.seq), finished]
    if seq < generation.seq - 1 or seq > generation.seq:
        return [_snapshot(generation, generation.seq - 1), finished]
    return [finished]


def _snapshot(generation: Generation, seq: int) -> dict[str, Any]:
    return _event("snapshot", generation, seq, text=generation.text)


def _event(kind: str, generation: Generation, seq: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"generation.{kind}", "generation_id": str(generation.pk), "seq": seq, **fields}


def _read(tenant_id: uuid.UUID, generation_id: uuid.UUID) -> Generation:
    with tenant_scope(tenant_id):
        generation = Generation.objects.filter(pk=generation_id).defer("token_ids", "request").first()
    if generation is None:
        raise GenerationUnknown(str(generation_id))
    return generation


def _ask_to_stop(tenant_id: uuid.UUID, generation_id: uuid.UUID) -> Generation:
    with tenant_scope(tenant_id):
        Generation.objects.filter(pk=generation_id, finished__isnull=True).update(cancel_requested=True)
    return _read(tenant_id, generation_id)
