"""Applications start and stop with the server, on its loop."""

import asyncio

import pytest

from pagoda.engines import lifespan


@pytest.fixture
def hooks(monkeypatch):
    monkeypatch.setattr(lifespan, "_startup", [])
    monkeypatch.setattr(lifespan, "_shutdown", [])
    return []


async def converse(*kinds):
    """What the application answers to the server's messages."""
    incoming = asyncio.Queue()
    for kind in kinds:
        incoming.put_nowait({"type": f"lifespan.{kind}"})
    sent = []

    async def send(message):
        sent.append(message)

    await lifespan.lifespan({"type": "lifespan"}, incoming.get, send)
    return sent


def register(log, name, fails=False):
    async def start():
        log.append(f"start {name}")

    async def stop():
        log.append(f"stop {name}")
        if fails:
            raise RuntimeError(name)

    lifespan.on_startup(start)
    lifespan.on_startup(start)
    lifespan.on_shutdown(stop)


async def test_hooks_run_in_order_and_end_in_reverse(hooks):
    register(hooks, "engines")
    register(hooks, "recorder", fails=True)
    sent = await converse("startup", "shutdown")
    assert hooks == ["start engines", "start recorder", "stop recorder", "stop engines"]
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_start_that_fails_ends_the_server_with_its_message(hooks):
    async def fail():
        raise RuntimeError("the port is taken")

    lifespan.on_startup(fail)
    [message] = await converse("startup")
    assert message == {"type": "lifespan.startup.failed", "message": "the port is taken"}


def test_the_server_knows_the_protocol():
    from pagoda.asgi import application

    assert set(application.application_mapping) == {"http", "websocket", "lifespan"}
