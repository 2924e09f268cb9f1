"""The connection breaks, the engine dies, the caller is cancelled: said at once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import grpc.aio
import pytest

from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable
from pagoda_inference.protocol import Account, SetAccounts
from tests.inference.running_engine import Tenant, read


class Process:
    """An engine in a process of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *flags: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from pagoda_inference.command import main; main()"),
            *("serve", "--model", "echo", "--address", self.address, "--step-ms", "5", *flags),
            stderr=asyncio.subprocess.PIPE,
        )

    async def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.communicate()
        return int(self._process.returncode or 0)


@pytest.fixture
async def process(socket_folder: Path):
    process = Process(f"unix:{socket_folder}/engine.sock")
    await process.start()
    yield process
    await process.end(signal.SIGKILL)


async def test_a_killed_engine_is_noticed_within_a_second_and_the_next_one_is_found(process):
    connections = []

    async def note(client: EngineClient, info) -> None:
        assert not client.connected
        connections.append(info.instance)
        assert (await client.set_accounts(SetAccounts(1, (Account("acme"), Account("rival"))))).applied

    async with EngineClient(process.address) as client:
        client.on_connect.append(note)
        first = await client.connect(120)
        running = [Tenant(name, client).start(max_tokens=3000, ignore_eos=True) for name in ("acme", "rival")]
        for subscription in running:
            await read(subscription, 5)
        killed = time.monotonic()
        os.kill(process._process.pid, signal.SIGKILL)
        for subscription in running:
            with pytest.raises(EngineUnavailable):
                await read(subscription)
        assert time.monotonic() - killed < 1
        with pytest.raises(EngineUnavailable):
            await read(client.attach(running[0].id, "acme", running[0].last_seq))
        with pytest.raises(EngineUnavailable):
            await client.cancel(running[0].id, "acme")
        with pytest.raises(EngineUnavailable):
            await client.models()

        await process.end(signal.SIGKILL)
        await process.start()  # over the socket that the dead one left
        second = await client.connect(120)
        assert second.instance != first.instance
        assert connections == [first.instance, second.instance]
        assert client.instance == second.instance
        assert (await Tenant("acme", client).answer(max_tokens=2)).finished.reason == "length"


async def test_sigterm_finishes_what_runs_and_exits_with_0(process):
    async with EngineClient(process.address) as client:
        await client.connect(120)
        acme, rival = Tenant("acme", client), Tenant("rival", client)
        running = [acme.start(max_tokens=3000, ignore_eos=True), rival.start(max_tokens=3000, ignore_eos=True)]
        for subscription in running:
            await read(subscription, 5)
        ended = asyncio.create_task(process.end(signal.SIGTERM))
        for subscription in running:
            finished = (await read(subscription)).finished
            assert (finished.reason, finished.error.code) == ("error", "engine_stopping")
            assert finished.usage.output_tokens > 0
        assert await ended == 0
    assert not os.path.exists(process.address.removeprefix("unix:"))  # noqa: ASYNC240 - one look, at the end


async def test_a_client_without_an_engine_says_so_at_once_and_after_its_patience(socket_folder):
    async with EngineClient(f"unix:{socket_folder}/nobody.sock") as client:
        begin = time.monotonic()
        with pytest.raises(EngineUnavailable, match=r"nobody\.sock"):
            await client.connect(timeout=0.3)
        assert time.monotonic() - begin < 1
        with pytest.raises(EngineUnavailable):
            await read(client.attach("g", "acme"))
        with pytest.raises(EngineUnavailable):
            await client.tokenize("text")


async def test_a_hook_that_fails_is_tried_again_before_anything_else_is_sent(engine):
    attempts = []

    async def hesitant(client: EngineClient, info) -> None:
        attempts.append(client.connected)
        if len(attempts) == 1:
            raise OSError("the database is not there yet")

    client = EngineClient(engine.address)
    client.on_connect.append(hesitant)
    await client.connect()
    assert attempts == [False, False]
    assert (await Tenant("acme", client).answer(max_tokens=2)).finished.reason == "length"
    await client.close()


async def test_cancelled_callers_leave_nothing_behind(start_engine):
    engine = await start_engine(step_ms=2)
    client = await engine.client()
    acme, rival = Tenant("acme", client), Tenant("rival", client)
    running = acme.start(id="g", max_tokens=100, ignore_eos=True)
    reader = asyncio.create_task(read(running))
    calls = [
        asyncio.create_task(call)
        for call in (client.cancel("nothing", "acme"), client.models(), client.tokenize("x" * 50_000))
    ]
    await asyncio.sleep(0)
    for task in (reader, *calls):
        task.cancel()
    await asyncio.gather(reader, *calls, return_exceptions=True)
    running.close()
    assert client._subscriptions == {}
    assert (await rival.answer(max_tokens=5)).finished.reason == "length"
    await acme.client.cancel("g", "acme")
    assert (await read(acme.attach("g"))).finished.reason in ("cancelled", "length")


class Stuck:
    """A stream to an engine that takes nothing any more; ``broken``: it says so."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.writing = asyncio.Event()

    async def write(self, message: bytes) -> None:
        self.writing.set()
        if self.broken:
            raise grpc.aio.UsageError("RPC already finished.")
        await asyncio.Event().wait()


@pytest.mark.parametrize("broken", [True, False], ids=["fails", "is cut off"])
async def test_a_message_that_is_lost_while_it_is_written_is_told(start_engine, broken):
    """It is no longer among those that wait to be sent, and its sender would wait for ever."""
    client = await (await start_engine()).client()
    stream = Stuck(broken)
    client._outgoing = asyncio.Event()  # the client's own writer waits for the other one
    writer = asyncio.create_task(client._write(stream))
    cancelling = asyncio.create_task(client.cancel("g", "acme"))
    await stream.writing.wait()
    writer.cancel()
    with pytest.raises(EngineUnavailable, match="broke"):
        await asyncio.wait_for(cancelling, 60)
    await asyncio.gather(writer, return_exceptions=True)


async def test_a_watch_that_is_left_ends_and_one_that_loses_its_engine_says_so(start_engine):
    engine = await start_engine()
    client = await engine.client()
    async for report in client.watch(0.05):
        assert report.free == report.total
        break
    reports = client.watch(0.05)
    await anext(reports)
    await client.close()
    with pytest.raises(EngineUnavailable):
        await anext(reports)


async def test_a_new_generate_is_refused_while_the_engine_stops(start_engine):
    engine = await start_engine(step_ms=5)
    acme = Tenant("acme", await engine.client())
    running = acme.start(max_tokens=3000, ignore_eos=True)
    await read(running, 3)
    engine.ask_to_stop()
    assert (await read(running)).finished.error.code == "engine_stopping"
    codes = set()
    while acme.client.connected:
        try:
            await read(acme.start())
        except EngineRefused as refused:
            codes.add(refused.error.code)
        except EngineUnavailable:
            break
    assert codes <= {"engine_stopping"}
    assert await engine.stopped()
