"""The engine dies in the middle of an answer: what was written is kept, and can be completed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket, client_id
from engine_at_hand import DaemonProcess, echo, long_question, new_address
from web_process import until_ready

from pagoda.chat.models import Message
from pagoda.generations import recording
from pagoda.generations.models import Generation
from pagoda.usage.models import UsageRecord
from pagoda_inference.client import EngineClient

OpenSocket = Callable[..., Awaitable[Socket]]


async def until_it_listens(address: str) -> None:
    """A process begins in a second, or in many where much else runs."""
    async with EngineClient(address) as client:
        await client.connect(timeout=60)


@pytest.fixture
async def daemon(home: Path, settings: Any) -> AsyncIterator[DaemonProcess]:
    address = new_address()
    settings.PAGODA_ENGINES = [address]
    process = DaemonProcess(address, home, step_ms=100)
    await process.start()
    await until_it_listens(address)
    yield process
    await process.stop()


@pytest.fixture
def engine(daemon: DaemonProcess, settings: Any) -> str:
    address: str = settings.PAGODA_ENGINES[0]
    return address


async def test_a_killed_engine_leaves_the_partial_text_and_continue_completes_it(
    socket: Socket,
    open_socket: OpenSocket,
    rival_socket: Socket,
    daemon: DaemonProcess,
    engine: str,
    acme: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = long_question()
    created = await socket.ask(question)
    other = await rival_socket.ask(long_question(number=1))
    answer = await socket.read_until(created["generation_id"], 15)
    heard = answer.text
    assert recording.GRACE_S <= 3
    monkeypatch.setattr(recording, "GRACE_S", 1.0)
    await daemon.kill()
    killed = time.monotonic()
    await socket.read_answer(created["generation_id"], answer)
    assert time.monotonic() - killed < 5
    assert answer.state == "interrupted"
    assert answer.kinds()[-2:] == ["snapshot", "finished"]
    assert answer.finished is not None
    assert answer.finished["seq"] == answer.seq >= 15
    unknown = ("queued_s", "prefill_s", "decode_s", "blocks_freed")
    assert {answer.finished["usage"][name] for name in unknown} == {None}
    assert (await rival_socket.read_answer(other["generation_id"])).state == "interrupted"

    stored = await database_sync_to_async(Message.across_tenants.get)(pk=created["assistant_message"]["id"])
    assert (stored.state, stored.content) == ("interrupted", answer.text)
    assert echo(question)[1].startswith(answer.text)
    # Everything that the socket had heard is kept, although no snapshot was due yet.
    assert answer.text.startswith(heard)
    record = await database_sync_to_async(UsageRecord.across_tenants.get)(generation_id=created["generation_id"])
    assert record.prompt_tokens == echo(question)[0]
    assert record.output_tokens >= 13

    fields = {"message_id": created["assistant_message"]["id"], "sampling": {"temperature": 0}}
    error = await socket.refusal("message.continue", client_id=client_id(), **fields)
    assert error["code"] == "unavailable"
    daemon.step_ms = 5
    await daemon.start()
    await until_it_listens(engine)
    await until_ready(engine)
    continued = await socket.request("message.continue", "message.created", client_id=client_id(), **fields)
    rest = await socket.read_answer(continued["generation_id"])
    assert rest.state == "complete"
    assert answer.text.rstrip("\ufffd") + rest.text == echo(question)[1]


async def test_an_engine_that_is_back_at_once_interrupts_at_once(
    socket: Socket, daemon: DaemonProcess, engine: str
) -> None:
    created = await socket.ask(long_question())
    answer = await socket.read_until(created["generation_id"], 10)
    await daemon.kill()
    await daemon.start()
    await socket.read_answer(created["generation_id"], answer)
    assert answer.state == "interrupted"
    assert answer.finished is not None
    assert answer.finished["error"]["code"] == "unavailable"


async def test_an_engine_that_is_stopped_in_order_interrupts_as_well(
    socket: Socket, daemon: DaemonProcess, engine: str
) -> None:
    question = long_question()
    created = await socket.ask(question)
    answer = await socket.read_until(created["generation_id"], 10)
    await daemon.stop()
    await socket.read_answer(created["generation_id"], answer)
    assert answer.state == "interrupted"
    assert echo(question)[1].startswith(answer.text)


async def test_an_answer_stopped_while_its_engine_is_away_is_cancelled(
    socket: Socket, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "GRACE_S", 10.0)  # until the wish to stop is stored
    created = await socket.ask(long_question())
    answer = await socket.read_until(created["generation_id"], 10)
    await daemon.kill()
    await socket.request("generation.stop", "generation.stopping", generation_id=created["generation_id"])
    await socket.read_answer(created["generation_id"], answer)
    assert answer.state == "cancelled"
    generation = await database_sync_to_async(Generation.across_tenants.get)(pk=created["generation_id"])
    assert generation.lease_owner == ""
