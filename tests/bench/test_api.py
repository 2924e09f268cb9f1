"""The benchmark of the API reads streams however they are cut, and compares what both sides did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bench import api
from bench.api import Answer, Measured
from bench.http_client import Connection
from bench.results import Results

EVENTS = b'data: {"a": 1}\n\ndata: {"a": "\xc3\xa9"}\n\ndata: [DONE]\n\n'


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server: /stream sends EVENTS in pieces of 5 bytes, any other address is not found."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            if b" /stream " in head:
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for at in range(0, len(EVENTS), 5):
                    piece = EVENTS[at : at + 5]
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nno\nsuch")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_events_are_read_however_they_are_cut_and_the_connection_goes_on(port: int) -> None:
    async with Connection(port, "key") as connection:
        for _ in range(2):
            assert [event async for event in connection.events("/stream", {})] == [{"a": 1}, {"a": "é"}]
        assert await connection.post("/other", {}) == 404
        assert await connection.get("/other") == 404


async def test_a_stream_that_is_refused_is_no_stream(port: int) -> None:
    async with Connection(port, "key") as connection:
        with pytest.raises(RuntimeError, match="404: no\nsuch"):
            await anext(connection.events("/other", {}))


def test_rates_are_compared_round_by_round_and_times_by_their_medians() -> None:
    measured = Measured()
    for engine_s, api_s in ((10.0, 10.0), (10.0, 20.0), (5.0, 10.0)):
        measured.streams["engine"].append([Answer(0.05, engine_s, 100), Answer(0.05, engine_s / 2, 100)])
        measured.streams["api"].append([Answer(0.06, api_s, 100), Answer(0.06, api_s / 2, 100)])
    measured.single["engine"] = [Answer(0.040, 1, 2)] * 3
    measured.single["api"] = [Answer(0.050, 1, 2), Answer(0.060, 1, 2), Answer(0.500, 1, 2)]
    measured.rejected = {"wrong_field": [0.001, 0.003], "rate_limit": [0.1, 0.1, 0.1]}
    results = Results("api")
    api._add(results, measured)
    found = {result["name"]: result for result in results.results}
    assert found["api.streams.ratio"]["value"] == 0.5
    assert found["api.streams.ratio"]["ok"] is False
    assert found["api.first.added_ms"]["value"] == pytest.approx(20)
    assert found["api.together.added_ms"]["value"] == pytest.approx(10)
    assert found["api.rejected_ms"]["value"] == pytest.approx(100)
    assert found["api.rejected_ms"]["ok"] is False
