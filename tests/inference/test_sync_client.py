"""The blocking client."""

from __future__ import annotations

import asyncio
import os

import pytest

from pagoda_inference.client import EngineRefused, EngineUnavailable, SyncEngineClient
from pagoda_inference.protocol import Account, ChatMessage, SetAccounts


async def test_it_does_what_the_other_does(engine, acme, rival):
    await acme.answer("x" * 40, max_tokens=2)
    await rival.answer("x" * 40, max_tokens=2)

    def blocking() -> None:
        with SyncEngineClient(engine.address) as client:
            assert client.models().id == "echo"
            report = client.watch_once()
            assert report.free + sum(a.active + a.cached for a in report.accounts) == report.total
            assert {a.id for a in report.accounts} == {"acme", "rival"}
            assert client.set_accounts(SetAccounts(3, (Account("acme"), Account("rival")))).applied
            tokens = client.tokenize("안녕").token_ids
            assert client.detokenize(tokens).text == "안녕"
            assert client.tokenize(messages=(ChatMessage("user", "hi"),)).token_ids
            with pytest.raises(EngineRefused):
                client.detokenize((-1,))

    await asyncio.to_thread(blocking)


def test_without_an_engine_it_says_so_at_once(socket_folder):
    with SyncEngineClient(f"unix:{socket_folder}/nobody.sock") as client, pytest.raises(EngineUnavailable):
        client.models()


async def test_a_forked_child_opens_a_connection_of_its_own(engine, acme):
    client = SyncEngineClient(engine.address)
    await asyncio.to_thread(client.models)
    opened = client._opened
    assert opened is not None
    assert opened[0] == os.getpid()
    client._opened = (os.getppid(), opened[1])  # as a child finds it after a fork
    await asyncio.to_thread(client.models)
    assert client._opened[0] == os.getpid()
    assert client._opened[1] is not opened[1]
    client.close()
    opened[1].close()
