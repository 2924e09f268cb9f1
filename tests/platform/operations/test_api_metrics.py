"""Requests to the API in the metrics: by route pattern, never by what a caller makes up."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from pagoda.asgi import application
from pagoda.operations import api_metrics
from pagoda.operations.api_metrics import measured


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    api_metrics.requests.clear()
    api_metrics.seconds.clear()


def counted() -> dict[tuple[str, str, str], float]:
    """(method, route, status) -> requests."""
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for metric in api_metrics.requests.collect()
        for sample in metric.samples
        if sample.name == "pagoda_api_requests_total"
    }


def timed() -> dict[tuple[str, str], float]:
    """(method, route) -> seconds of all requests."""
    return {
        (sample.labels["method"], sample.labels["route"]): sample.value
        for metric in api_metrics.seconds.collect()
        for sample in metric.samples
        if sample.name == "pagoda_api_request_seconds_sum"
    }


def scope(path: str, method: str = "GET") -> dict[str, Any]:
    return {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": b"",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip


async def ask(path: str, method: str = "GET", of: Any = application) -> int:
    """The status of the whole application's answer, read to its end."""
    communicator = ApplicationCommunicator(of, scope(path, method))
    await communicator.send_input({"type": "http.request", "body": b"", "more_body": False})
    start: Mapping[str, Any] = await communicator.receive_output(timeout=60)
    while (await communicator.receive_output(timeout=60)).get("more_body"):
        pass
    await communicator.wait(timeout=60)
    return int(start["status"])


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def test_requests_are_counted_by_method_route_and_status() -> None:
    assert await ask("/v1/openapi.json") == 200
    assert await ask("/v1/openapi.json") == 200
    assert await ask("/v1/models") == 401
    assert await ask("/v1/chat/completions") == 405
    assert counted() == {
        ("GET", "/v1/openapi.json", "200"): 2,
        ("GET", "/v1/models", "401"): 1,
        ("GET", "/v1/chat/completions", "405"): 1,
    }
    assert all(value > 0 for value in timed().values())


async def test_what_callers_make_up_makes_no_time_series() -> None:
    site = measured(answer, "/v1/")
    for number in range(20):
        assert await ask(f"/v1/files/file-{uuid.uuid4().hex}", of=site) == 200
        await ask(f"/v1/{uuid.uuid4().hex}", of=site)
        await ask("/v1/models", method=f"INVENTED{number}", of=site)
    assert counted() == {
        ("GET", "/v1/files/<file_id>", "200"): 20,
        ("GET", "other", "200"): 20,
        ("other", "/v1/models", "200"): 20,
    }
    assert set(timed()) == {key[:2] for key in counted()}


async def test_pages_and_their_likes_are_not_the_apis() -> None:
    site = measured(answer, "/v1/")
    for path in ("/", "/healthz", "/v1x", "/admin/v1/"):
        await ask(path, of=site)
    assert counted() == {}
    await ask("/v1", of=site)
    assert counted() == {("GET", "other", "200"): 1}


async def test_a_stream_counts_until_its_end_and_with_its_status() -> None:
    more = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await more.wait()
        raise RuntimeError("broken off")

    communicator = ApplicationCommunicator(measured(stream, "/v1/"), scope("/v1/completions", "POST"))
    await communicator.receive_output(timeout=60)
    assert counted() == {}
    more.set()
    with pytest.raises(RuntimeError, match="broken off"):
        await communicator.wait(timeout=60)
    assert counted() == {("POST", "/v1/completions", "200"): 1}


async def test_without_an_answer_the_status_says_whose_fault_it_was() -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("a fault")

    async def leave(scope: Any, receive: Any, send: Any) -> None:
        """What the API does where the caller has hung up."""

    with pytest.raises(RuntimeError, match="a fault"):
        await measured(fail, "/v1/")(scope("/v1/models"), None, None)  # type: ignore[arg-type]
    await measured(leave, "/v1/")(scope("/v1/models"), None, None)  # type: ignore[arg-type]
    assert counted() == {("GET", "/v1/models", "500"): 1, ("GET", "/v1/models", "none"): 1}
