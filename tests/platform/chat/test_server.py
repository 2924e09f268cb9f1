"""Through a real server and real sockets: restarts, and clients that do not read."""

from __future__ import annotations

import asyncio
import json
import socket as sockets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from channels.db import database_sync_to_async
from chat_sockets import Answer, client_id, sign_in
from django.conf import settings
from engine_at_hand import echo, long_question
from web_process import until_ready
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from pagoda.asgi import application
from pagoda.chat import access_watch, consumer


@pytest.fixture
def step_ms() -> float:
    return 5


class Server:
    """uvicorn on this event loop, as ``make up`` starts it: with the lifespan of the web process."""

    def __init__(self) -> None:
        self._listening = sockets.socket()
        self._listening.bind(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listening.getsockname()[1]}"

    @asynccontextmanager
    async def running(self, engine: str) -> AsyncIterator[uvicorn.Server]:
        config = uvicorn.Config(application, lifespan="on", log_level="warning", ws_max_size=1 << 20)
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server._serve([self._listening.dup()]))
        while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        await until_ready(engine)
        yield server
        server.should_exit = True
        await task


class Client:
    """A browser's socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind} | fields))

    async def expect(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                message: dict[str, Any] = json.loads(await self.connection.recv())
                if message["type"] == kind:
                    return message

    async def read(self, answer: Answer, seq: int = 1 << 60) -> Answer:
        async with asyncio.timeout(60):
            while answer.seq < seq and answer.finished is None:
                message = json.loads(await self.connection.recv())
                if message["type"].startswith("generation."):
                    answer.apply(message)
        return answer


@pytest.fixture
async def party(transactional_db: None, acme: Any, rival: Any, titles_asked: Any) -> Any:
    return acme


async def open_client(server: Server, user: Any, **options: Any) -> Client:
    session = await database_sync_to_async(sign_in)(user)
    connection = await connect(
        f"ws://{server.host}/ws/v1",
        origin=f"http://{server.host}",  # type: ignore[arg-type]
        additional_headers={"cookie": f"{settings.SESSION_COOKIE_NAME}={session.session_key}"},
        **options,
    )
    client = Client(connection)
    await client.send("hello", version=1)
    await client.expect("welcome")
    return client


async def ask(client: Client, question: str) -> dict[str, Any]:
    await client.send("message.create", client_id=client_id(), content=question, sampling={"temperature": 0})
    return await client.expect("message.created")


@pytest.mark.parametrize("step_ms", [40.0], ids=["slowly"])
async def test_a_restart_in_the_middle_of_an_answer_loses_and_doubles_nothing(
    party: Any, engine: str, hurry: Callable[[], None]
) -> None:
    question = long_question()
    server = Server()
    async with server.running(engine) as process:
        client = await open_client(server, party.member)
        created = await ask(client, question)
        answer = await client.read(Answer(), seq=20)
        process.should_exit = True
        with pytest.raises(ConnectionClosed) as closed:
            await client.read(answer)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    hurry()
    async with server.running(engine):
        again = await open_client(server, party.member)
        await again.send("generation.attach", generation_id=created["generation_id"], after_seq=answer.seq)
        await again.read(answer)
        assert answer.text == echo(question)[1]
        assert (answer.state, answer.doubled) == ("complete", 0)
        await again.connection.close()


async def test_a_client_that_does_not_read_holds_up_nobody_and_is_shown_out(
    party: Any, rival: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "STALLED_S", 0.5)
    monkeypatch.setattr(consumer, "CLOSE_WITHIN_S", 0.2)
    server = Server()
    async with server.running(engine):
        slow = await open_client(server, party.member, max_queue=1, compression=None)
        quick = await open_client(server, rival.member)
        await slow.send("message.create", client_id=client_id(), content="x" * 100_000)
        created = await slow.expect("message.created")
        await slow.connection.recv()
        # From here on it reads nothing, and asks for the long question again and again.
        slow.connection.transport.pause_reading()
        opening = {"type": "conversation.open", "conversation_id": created["conversation"]["id"]}
        for _ in range(300):
            await slow.connection.send(json.dumps(opening))
        question = long_question()
        created = await ask(quick, question)
        answer = await quick.read(Answer())
        assert (answer.text, answer.state) == (echo(question)[1], "complete")
        async with asyncio.timeout(60):
            while len(access_watch._sockets) > 1:  # noqa: ASYNC110  (nobody waits for this in the product)
                await asyncio.sleep(0.02)
        slow.connection.transport.resume_reading()
        received = 0
        with suppress(ConnectionClosed):
            async with asyncio.timeout(60):
                async for message in slow.connection:
                    received += len(message)
        # 300 answers of 100 kB were asked for: what was sent is what the network's buffers took.
        assert received < 20_000_000
        await quick.connection.close()


async def test_a_frame_beyond_the_limit_is_refused_over_the_network_too(party: Any, engine: str) -> None:
    server = Server()
    async with server.running(engine):
        client = await open_client(server, party.member)
        await client.send("ping", padding="x" * 300_000)
        assert (await client.expect("error"))["code"] == "too_large"
        await client.send("ping")
        assert await client.expect("pong")
        await client.connection.close()
