"""A replay begins with a server that answers and keys that it takes, or ends in a line that says why not."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.replay import benchmark, callers
from bench.replay.callers import KeysUnusable
from bench.replay.sending import Sender
from bench.replay.server import Address, ServerUnusable, find_model, parse_url
from bench.results import Results
from bench.traces.content import Content
from tests.bench.fake_server import KEYS, Asked, FakeServer, Write, event
from tests.bench.replaying import arena_file, asked, traced

Said = Callable[[argparse.Namespace], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """The line that says why a replay cannot begin. Nothing is recorded then: an earlier run's files stay."""

    def said(chosen: argparse.Namespace) -> str:
        results = Results("replay")
        with pytest.raises(SystemExit) as ended:
            benchmark.run(results, chosen)
        assert ended.value.code == 2
        assert (results.results, results.skipped) == ([], [])
        line = capsys.readouterr().err
        assert line.startswith("bench: ")
        assert line.count("\n") == 1
        assert "pgd_" not in line
        return line

    return said


def test_keys_in_turn_stay_with_their_client_or_conversation() -> None:
    names = callers.assign(
        [traced(0, client="a"), traced(1, client="b"), traced(2, client="c"), traced(3, client="a")], ["k1", "k2"]
    )
    assert names == ["key-1", "key-2", "key-1", "key-1"]
    talks = [traced(0, client="", conversation=name) for name in ("x", "y", "x", "z")]
    assert callers.assign(talks, ["k1", "k2"]) == ["key-1", "key-2", "key-1", "key-1"]
    assert callers.assign([traced(0, client="")] * 3, KEYS) == ["acme", "rival", "acme"]
    assert callers.by_tenant(["k1", "k2"]) == {"key-1": "k1", "key-2": "k2"}


def test_a_client_without_a_key_is_named() -> None:
    with pytest.raises(KeysUnusable, match="no key for the clients other, third: add them"):
        callers.assign([traced(0), traced(1, client="third"), traced(2, client="other")], KEYS)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '"key"', '["k", 1]', '{"acme": null}'])
def test_a_file_that_holds_no_keys_says_what_it_should_hold(content: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(KeysUnusable) as caught:
        callers.read_keys(path)
    assert f'{path}: expected a JSON object {{"client": "key", ...}} or a list' in str(caught.value)


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ServerUnusable, match="expected http://HOST:PORT"):
        parse_url(url)


def test_an_address_may_have_the_apis_path() -> None:
    assert parse_url("http://host:8000/v1/") == Address("host", 8000, tls=False)
    assert parse_url("https://host/chat/v1") == Address("host", 443, tls=True, path="/chat")


async def test_the_servers_first_model_is_asked_unless_another_is_named(fake: FakeServer) -> None:
    fake.models = {"one": 100, "two": 200}
    assert (await find_model(fake.server.address, "k", None)).model == "one"
    assert (await find_model(fake.server.address, "k", "two")).context == 200
    with pytest.raises(ServerUnusable, match="has no model 'three', but one, two"):
        await find_model(fake.server.address, "k", "three")
    with pytest.raises(ServerUnusable, match="cannot be reached"):
        await find_model(Address("127.0.0.1", 1, tls=False), "k", None)


async def test_a_key_that_is_refused_ends_the_replay_before_it_begins(fake: FakeServer) -> None:
    fake.refuse = lambda asked: (401, b"{}") if asked.key == "pgd_rival" else None
    with pytest.raises(ServerUnusable, match="for rival failed: 401"):
        await Sender(fake.server, KEYS, Content(1, 0, 255), 5).warm_up()


def test_an_engine_that_does_not_start_ends_the_replay_with_the_command_to_try(said: Said) -> None:
    chosen = asked("--trace", "law:alpaca", "--rate", "9", "--model", "echo", "--engine", "--block-size 999")
    assert re.search(r"did not start: the engine ended with status 2; try .* --block-size 999", said(chosen))


def test_a_trace_that_is_nowhere_ends_the_replay(said: Said, tmp_path: Path) -> None:
    chosen = asked("--trace", "azure")
    assert "--traces DIR" in said(chosen)
    chosen.traces = tmp_path
    assert str(tmp_path / "azure2023") in said(chosen)
    gone = tmp_path / "gone.csv"
    assert f"there is no trace {gone}: it is no file, no folder and none of sharegpt, " in said(
        asked("--trace", str(gone))
    )
    assert "there is no law 'law:x'" in said(asked("--trace", "law:x", "--rate", "1"))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.csv", b"t_s,client,input_tokens,output_tokens\n0,acme,foo,1\n", "line 2: input_tokens is 'foo', not a"),
        ("t.csv", b"\x7fELF\x00\xff\xfe", "line 1: no text in UTF-8"),
        ("t.jsonl", b"\x7fELF\x00\xff\xfe", "line 1: no text in UTF-8"),
        ("t.bin", b"PK\x03\x04", "line 1: no JSON"),
    ],
)
def test_a_trace_that_is_malformed_ends_the_replay_with_its_file_and_line(
    said: Said, tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said(asked("--trace", str(path))).startswith(f"bench: {path}, {expected}")


@pytest.mark.parametrize("key", ["", "pgd_acme\n", " pgd_acme", "pgd_acme pgd_rival", "pgd_ä", "pgd_\x00"])
def test_a_key_that_none_can_be_is_named_and_not_shown(key: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for content, name in ((["pgd_good", key], "key-2"), ({"acme": "pgd_good", "rival": key}, "rival")):
        path.write_text(json.dumps(content))
        with pytest.raises(KeysUnusable) as caught:
            callers.read_keys(path)
        assert str(caught.value).endswith(f": {name}")
        assert "pgd_" not in str(caught.value)


@dataclass
class Against:
    """The options of a replay of two tenants against a server, with their keys in turn."""

    folder: Path

    def __call__(self, port: int, *more: str, path: str = "") -> argparse.Namespace:
        (self.folder / "keys.json").write_text(json.dumps(list(KEYS.values())))
        file = arena_file(self.folder / "t.csv", (0.0, "acme", 90, 30), (0.1, "rival", 90, 30))
        url = f"http://127.0.0.1:{port}{path}"
        return asked("--trace", str(file), "--url", url, "--keys", str(self.folder / "keys.json"), *more)


@pytest.fixture
def against(tmp_path: Path) -> Against:
    return Against(tmp_path)


async def test_a_key_that_is_refused_is_named_and_neither_it_nor_json_is_shown(
    fake: FakeServer, against: Against, said: Said
) -> None:
    def refuse(asked: Asked) -> tuple[int, bytes] | None:
        error = {"code": "invalid_api_key", "message": f"There is no key {asked.key}.\nMake one."}
        return (401, json.dumps({"error": error}).encode()) if asked.key == "pgd_rival" else None

    fake.refuse = refuse
    line = await asyncio.to_thread(said, against(fake.port))
    assert line == (
        "bench: a first request of one token for key-2 failed: 401 invalid_api_key: There is no key …. Make one.\n"
    )


async def test_a_first_request_that_fails_in_its_stream_ends_the_replay(
    fake: FakeServer, against: Against, said: Said
) -> None:
    async def fail(body: dict[str, object], write: Write) -> None:
        await write(event({"error": {"code": "model_error", "message": "The model failed."}}))

    fake.behave = fail
    line = await asyncio.to_thread(said, against(fake.port))
    assert "for key-1 failed: model_error: The model failed." in line


async def test_a_server_that_never_answers_ends_the_replay_within_its_timeout(
    fake: FakeServer, against: Against, said: Said
) -> None:
    never = asyncio.Event()

    async def hold(*_: object) -> None:
        await never.wait()

    fake.behave = hold
    with pytest.raises(ServerUnusable, match=r"for acme failed: no answer within 0\.2 s"):
        await Sender(fake.server, KEYS, Content(1, 0, 255), 0.2).warm_up()
    async with await asyncio.start_server(hold, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        line = await asyncio.to_thread(said, against(port, "--timeout", "0.2"))
        never.set()
    assert f"127.0.0.1:{port} did not list its models within 0.2 s" in line


async def test_a_page_that_is_no_api_is_shown_by_its_status_and_its_beginning(against: Against, said: Said) -> None:
    page = b"<!DOCTYPE html>\n<html>\n" + b"<p>Not found.</p>\n" * 100
    async with await web_server(page) as web:
        port = web.sockets[0].getsockname()[1]
        line = await asyncio.to_thread(said, against(port, path="/foo"))
    assert f"127.0.0.1:{port}/foo did not list its models for key-1: 404 <!DOCTYPE html> <html> <p>Not" in line
    assert len(line) < 250


async def web_server(page: bytes) -> asyncio.Server:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


async def test_a_replay_of_which_nothing_is_left_does_not_begin(fake: FakeServer, against: Against, said: Said) -> None:
    line = await asyncio.to_thread(said, against(fake.port, "--context", "100", "--long", "skip"))
    assert "every request of the trace is left out: 2 are longer than the context of 100 tokens, 0 have no" in line
    assert fake.asked == []


def test_engine_options_that_cannot_be_read_end_the_replay(said: Said) -> None:
    chosen = asked("--trace", "law:alpaca", "--rate", "9", "--model", "echo", "--engine", "--step-ms 'x")
    assert "--engine --step-ms 'x: No closing quotation" in said(chosen)
