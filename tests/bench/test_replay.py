"""A replay keeps a trace's arrivals and each tenant's key, counts what fails, and says what it measured."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.http_client import Refused
from bench.replay import benchmark, callers, options
from bench.replay.callers import KeysUnusable
from bench.replay.figures import add_figures, jain, served_until, tenants_of
from bench.replay.page import write_page
from bench.replay.record import Record
from bench.replay.sending import Sender
from bench.replay.server import Address, Server, ServerUnusable, find_model, parse_url
from bench.results import Results
from bench.traces.content import Content
from bench.traces.fitting import fit
from bench.traces.request import TracedRequest

KEYS = {"acme": "pgd_acme", "rival": "pgd_rival"}
ROOT = Path(__file__).resolve().parents[2]

Write = Callable[[bytes], Awaitable[None]]
"""Of one piece of an answer, for a server's answer to a completion."""


def event(content: dict[str, Any] | str) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return f"data: {text}\n\n".encode()


def usage(written: int, cached: int = 0) -> bytes:
    details = {"completion_tokens": written, "prompt_tokens_details": {"cached_tokens": cached}}
    return event({"choices": [], "usage": details}) + event("[DONE]")


async def answer(body: dict[str, Any], write: Write) -> None:
    """A token a piece, at once."""
    for _ in range(body["max_tokens"]):
        await write(event({"choices": [{"text": "a"}]}))
    await write(usage(body["max_tokens"], len(body["prompt"]) // 2))


@dataclass
class Asked:
    """A completion that the server was asked for. at: on the loop's clock."""

    key: str
    body: dict[str, Any]
    at: float
    ended: float | None = None


@dataclass
class FakeServer:
    """Answers as ``behave`` does; ``refuse``: status and body instead of an answer, by what was asked."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    behave: Callable[[dict[str, Any], Write], Awaitable[None]] = answer
    refuse: Callable[[Asked], tuple[int, bytes] | None] = lambda asked: None
    models: dict[str, int] = field(default_factory=lambda: {"fake": 4096})

    @property
    def server(self) -> Server:
        return Server(Address("127.0.0.1", self.port, tls=False), "fake", 4096)

    def prompts(self, key: str) -> list[list[int]]:
        return [each.body["prompt"] for each in self.asked if each.key == key]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            content = await reader.readexactly(int(fields["content-length"]))
            if head.startswith("GET /v1/models "):
                models = {"data": [{"id": name, "context_length": length} for name, length in self.models.items()]}
                _whole(writer, 200, json.dumps(models).encode())
            else:
                await self._complete(fields["authorization"].removeprefix("bearer "), json.loads(content), writer)
        finally:
            writer.close()

    async def _complete(self, key: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        asked = Asked(key, body, clock())
        self.asked.append(asked)
        if refusal := self.refuse(asked):
            _whole(writer, *refusal)
            return

        async def write(piece: bytes) -> None:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()

        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.behave(body, write)
        writer.write(b"0\r\n\r\n")
        asked.ended = clock()


def _whole(writer: asyncio.StreamWriter, status: int, content: bytes) -> None:
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content))


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    served = FakeServer()
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    async with server:
        served.port = server.sockets[0].getsockname()[1]
        yield served


def traced(at_s: float, prompt: int = 8, client: str = "acme", output: int = 3, **more: Any) -> TracedRequest:
    return TracedRequest(at_s, prompt, output, client, **more)


async def replayed(fake: FakeServer, requests: list[TracedRequest], timeout_s: float = 20) -> list[Record]:
    records = [Record(each.client, each.prompt_tokens, each.output_tokens, each.at_s) for each in requests]
    await Sender(fake.server, KEYS, Content(1, 0, 255), timeout_s).replay(requests, records)
    return records


class HeldUp:
    """seconds: how long this loop ran nothing, because the machine ran something else, in all."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def __aenter__(self) -> HeldUp:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + 0.01
            await asyncio.sleep(0.01)
            self.seconds += max(0.0, clock() - due - 0.01)


async def test_requests_are_sent_when_the_trace_has_them_arrive_whatever_became_of_others(fake: FakeServer) -> None:
    all_asked = asyncio.Event()

    async def until_all_asked(body: dict[str, Any], write: Write) -> None:
        if len(fake.asked) == 4:
            all_asked.set()
        await all_asked.wait()
        await answer(body, write)

    fake.behave = until_all_asked
    arrivals = [0.0, 0.3, 0.4, 0.9]
    async with HeldUp() as held_up:
        records = await replayed(fake, [traced(at) for at in arrivals])
    assert all(record.is_answered for record in records)
    assert [record.due_s for record in records] == arrivals
    assert all(0 <= record.late_s < 0.25 + held_up.seconds for record in records)
    gaps = [asked.at - fake.asked[0].at for asked in fake.asked]
    assert gaps == pytest.approx(arrivals, abs=0.25 + 2 * held_up.seconds)
    assert gaps[3] > 0.6 - held_up.seconds


async def test_each_tenants_requests_have_its_own_key_and_lengths(fake: FakeServer) -> None:
    requests = [traced(0.01 * number, 10 + number, ("acme", "rival")[number % 2], 1 + number) for number in range(10)]
    await replayed(fake, requests)
    assert sorted(len(prompt) for prompt in fake.prompts("pgd_acme")) == [10, 12, 14, 16, 18]
    assert sorted(len(prompt) for prompt in fake.prompts("pgd_rival")) == [11, 13, 15, 17, 19]
    assert all(each.body["max_tokens"] == len(each.body["prompt"]) - 9 for each in fake.asked)
    assert all(each.body["ignore_eos"] and each.body["stream"] for each in fake.asked)


async def test_times_and_counts_are_those_of_the_stream(fake: FakeServer) -> None:
    async def slowly(body: dict[str, Any], write: Write) -> None:
        await asyncio.sleep(0.2)
        await write(event({"choices": [{"text": "a"}]}))
        await asyncio.sleep(0.1)
        await write(event({"choices": [{"text": "b"}]}))
        await write(usage(3, cached=5))

    fake.behave = slowly
    [record] = await replayed(fake, [traced(0.0)])
    assert record.ttft_s >= 0.2
    assert record.text_s[1] - record.text_s[0] >= 0.1
    assert record.end_to_end_s >= 0.3
    assert (record.written_tokens, record.cached_tokens) == (3, 5)


async def test_what_fails_is_counted_by_its_code_and_not_sent_again(fake: FakeServer) -> None:
    def refuse(asked: Asked) -> tuple[int, bytes] | None:
        length = len(asked.body["prompt"])
        coded = json.dumps({"error": {"message": "Too many.", "code": "rate_limit_exceeded"}}).encode()
        return {11: (429, coded), 12: (502, b"<html>bad gateway")}.get(length)

    async def behave(body: dict[str, Any], write: Write) -> None:
        if len(body["prompt"]) == 13:
            await write(event({"choices": [{"text": "a"}]}))
            await write(event({"error": {"message": "The model failed.", "code": "model_error"}}))
        elif len(body["prompt"]) == 14:
            await write(event({"choices": [{"text": "a"}]}))
            raise ConnectionAbortedError
        elif len(body["prompt"]) == 15:
            await write(event({"choices": [{"text": "a"}]}) + event("[DONE]"))
        elif len(body["prompt"]) == 16:
            await asyncio.sleep(30)
        else:
            await answer(body, write)

    fake.refuse, fake.behave = refuse, behave
    lengths = range(10, 17)
    records = await replayed(fake, [traced(0.0, length, "rival") for length in lengths], timeout_s=3)
    outcomes = dict(zip(lengths, (record.outcome for record in records), strict=True))
    assert outcomes == {
        10: "",
        11: "rate_limit_exceeded",
        12: "http_502",
        13: "model_error",
        14: "connection_lost",
        15: "stream_ended_early",
        16: "timeout",
    }
    assert len(fake.asked) == len(lengths)
    results = Results("replay")
    add_figures(results, records)
    found = {result["name"]: result["value"] for result in results.results}
    assert found["replay.requests"] == {"asked": 7, "answered": 1, "failed": 6, "unfinished": 0}
    assert found["replay.errors"]["rate_limit_exceeded"] == 1


async def test_a_server_that_is_gone_fails_requests_and_not_the_replay(fake: FakeServer) -> None:
    fake.port = 1
    [record] = await replayed(fake, [traced(0.0)])
    assert record.outcome == "connection_failed"


async def test_a_turn_waits_for_the_one_before_and_begins_as_it_did_and_a_rivals_does_neither(fake: FakeServer) -> None:
    rival_asked = asyncio.Event()

    async def slowly(body: dict[str, Any], write: Write) -> None:
        if len(body["prompt"]) == 31:
            rival_asked.set()
        await rival_asked.wait()
        await asyncio.sleep(0.3)
        await answer(body, write)

    fake.behave = slowly
    requests = [
        traced(0.0, 20, "acme", conversation="c", turn=0),
        traced(0.05, 30, "acme", conversation="c", turn=1),
        traced(0.05, 31, "rival", conversation="c", turn=1),
    ]
    async with HeldUp() as held_up:
        records = await replayed(fake, requests)
    by_length = {len(each.body["prompt"]): each for each in fake.asked}
    first, second, rival = by_length[20], by_length[30], by_length[31]
    assert first.ended is not None
    assert rival.at < first.ended <= second.at
    assert second.body["prompt"][:20] == first.body["prompt"]
    assert rival.body["prompt"][:20] != first.body["prompt"]
    assert records[1].due_s >= 0.3
    assert records[1].late_s < 0.25 + held_up.seconds


def test_blocks_have_the_same_tokens_wherever_they_are_the_same() -> None:
    content = Content(1, 0, 255)
    longer = content.prompt(traced(0, 90, blocks=(1, 2, 3), block_tokens=32), 0)
    shorter = content.prompt(traced(0, 64, "rival", blocks=(1, 4), block_tokens=32), 1)
    assert len(longer) == 90
    assert longer[:32] == shorter[:32]
    assert longer[32:64] != shorter[32:]
    assert min(longer) >= 0
    assert max(longer) <= 255
    assert content.prompt(traced(0, 90, blocks=(1, 2, 3), block_tokens=32), 7) == longer
    assert Content(2, 0, 255).prompt(traced(0, 90, blocks=(1, 2, 3), block_tokens=32), 0) != longer


def test_requests_of_which_the_trace_says_nothing_share_nothing() -> None:
    content = Content(1, 0, 255)
    assert content.prompt(traced(0, 40), 0)[:16] != content.prompt(traced(0, 40), 1)[:16]


def test_long_requests_are_cut_at_the_end_or_left_out_and_counted() -> None:
    requests = [traced(0, 50, output=20), traced(1, 150, output=80), traced(2, 10, output=300), traced(3, 0, output=1)]
    fitted = fit(requests, 100, "cut")
    assert [(each.prompt_tokens, each.output_tokens) for each in fitted.requests] == [(50, 20), (50, 50), (10, 90)]
    assert (fitted.cut, fitted.too_long, fitted.empty) == (2, 0, 1)
    fitted = fit(requests, 100, "skip")
    assert [each.at_s for each in fitted.requests] == [0]
    assert (fitted.cut, fitted.too_long, fitted.empty) == (0, 2, 1)


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
    with pytest.raises(Refused, match="401"):
        await Sender(fake.server, KEYS, Content(1, 0, 255), 5).warm_up()


def record(tenant: str, sent: float, *text: float, prompt: int = 100, output: int = 10, **more: Any) -> Record:
    """An answer whose pieces came at ``text``, the last with its end; all of its output tokens are written."""
    end = text[-1] if text else None
    outcome = "" if text else "queue_full"
    fields = {"written_tokens": output if text else 0, "end_s": end, "outcome": outcome} | more
    return Record(tenant, prompt, output, sent - 0.01, sent, list(text), **fields)


def figures(records: list[Record]) -> dict[str, Any]:
    results = Results("replay")
    add_figures(results, records)
    return {result["name"].removeprefix("replay."): result["value"] for result in results.results}


def test_percentiles_are_those_of_the_answers() -> None:
    records = [record("acme", 1.0, 1.0 + number / 100, 2.0 + number / 10) for number in range(1, 101)]
    found = figures([*records, record("rival", 1.0)])
    assert found["ttft_p50_s"] == pytest.approx(0.51)
    assert found["ttft_p90_s"] == pytest.approx(0.91)
    assert found["ttft_p95_s"] == pytest.approx(0.96)
    assert found["ttft_p99_s"] == pytest.approx(1.00)
    assert found["end_to_end_p50_s"] == pytest.approx(1 + 5.1)
    assert found["inter_token_p50_s"] == pytest.approx(1 + 0.09 * 51)
    assert found["normalized_latency_s"] == pytest.approx((1 + 5.05) / 10)
    assert found["late_p99_s"] == pytest.approx(0.01)
    assert found["errors"] == {"queue_full": 1}


def test_a_sender_that_was_late_misses_its_goal() -> None:
    results = Results("replay")
    records = [record("acme", 1.0, 2.0), record("rival", 1.0, 2.0)]
    records[1].due_s = 0.8
    add_figures(results, records)
    found = {result["name"]: result.get("ok") for result in results.results}
    assert found["replay.late_p99_s"] is False
    records[1].due_s = 0.95
    again = Results("replay")
    add_figures(again, records)
    assert {result["name"]: result.get("ok") for result in again.results}["replay.late_p99_s"] is True


def test_the_hit_ratio_is_of_prompt_tokens_and_service_leaves_cached_ones_out() -> None:
    records = [
        record("acme", 0.0, 1.0, 2.0, prompt=300, cached_tokens=150),
        record("rival", 0.0, 1.0, 2.0, prompt=100),
        record("rival", 0.0, prompt=5000),
    ]
    found = figures(records)
    assert found["hit_ratio"] == pytest.approx(150 / 400)
    acme, rival = found["tenants"]
    assert (acme.service, rival.service) == (150 + 20, 100 + 20)
    assert (rival.asked, rival.answered) == (2, 1)
    assert found["jain_service"] == pytest.approx((170 + 120) ** 2 / (2 * (170**2 + 120**2)))


def test_the_served_share_is_what_came_until_the_last_arrival() -> None:
    records = [
        record("acme", 0.01, 1.0, 3.0, 5.0, 7.0, prompt=60, output=20),
        record("rival", 4.01, 4.5, 5.0, prompt=60, output=20),
    ]
    acme, rival = tenants_of(records)
    assert acme.served_share == pytest.approx((60 + 2 * 20 * 2 / 4) / (60 + 40))
    assert rival.served_share == 0
    assert served_until(records[0], 0.5) == 0
    assert served_until(records[0], 7.0) == 100


def test_jains_index_is_1_for_equals_and_1_of_n_where_one_has_everything() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(1 / 4)


def asked(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_to(parser)
    read = parser.parse_args(arguments)
    return argparse.Namespace(**(vars(read) | {"traces": None, "quick": False, "html": None}))


def arena_file(path: Path, *rows: tuple[float, str, int, int]) -> Path:
    path.write_text("t_s,client,input_tokens,output_tokens\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def test_a_traces_requests_are_cut_first_and_then_its_pace_is_set(tmp_path: Path) -> None:
    rows = [(float(number), ("acme", "rival")[number % 2], 5, 5) for number in range(10)]
    file = str(arena_file(tmp_path / "t.csv", *rows))
    rng = random.Random(1)
    fast = benchmark.trace_of(asked("--trace", file, "--requests", "5", "--speed", "2"), rng)
    assert [(each.at_s, each.client) for each in fast] == [
        (0.0, "acme"), (0.5, "rival"), (1.0, "acme"), (1.5, "rival"), (2.0, "acme"),
    ]  # fmt: skip
    short = benchmark.trace_of(asked("--trace", file, "--rate", "4", "--seconds", "1"), rng)
    assert [each.at_s for each in short] == [0.0, 0.25, 0.5, 0.75]


def test_a_rate_is_that_of_the_part_that_is_replayed(tmp_path: Path) -> None:
    """The trace begins with a quiet minute, and most of it comes after."""
    rows = [(0.0, "acme", 5, 5), (30.0, "rival", 5, 5), (60.0, "acme", 5, 5)]
    rows += [(60 + number / 100, "rival", 5, 5) for number in range(1, 500)]
    chosen = asked("--trace", str(arena_file(tmp_path / "t.csv", *rows)), "--rate", "0.5", "--seconds", "6")
    assert [each.at_s for each in benchmark.trace_of(chosen, random.Random(1))] == [0.0, 2.0, 4.0]


def test_a_trace_without_arrivals_needs_a_rate(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="give --rate"):
        benchmark.trace_of(asked("--trace", "law:alpaca"), random.Random(1))
    requests = benchmark.trace_of(asked("--trace", "law:alpaca", "--rate", "5", "--requests", "40"), random.Random(1))
    assert len(requests) == 40
    assert 0 < requests[0].at_s < requests[-1].at_s < 20


def test_a_missing_trace_is_skipped_with_the_reason(tmp_path: Path) -> None:
    results = Results("replay")
    chosen = asked("--trace", "azure")
    chosen.traces = tmp_path
    benchmark.run(results, chosen)
    [skipped] = results.skipped
    assert str(tmp_path / "azure2023") in skipped["why"]


def test_the_report_has_the_figures_and_no_key(tmp_path: Path) -> None:
    results = Results("replay")
    trace = {"name": "t", "requests": 3, "cut": 1, "too_long": 0, "empty": 0, "context": 100, "model": "fake"}
    results.add_value("replay.trace", trace)
    results.add_value("replay.not_due", 0)
    records = [
        record("acme", 0.0, 0.5, 0.75, cached_tokens=25),
        record("rival <b>", 0.2, 0.7, 0.9),
        record("rival <b>", 0.3),
    ]
    add_figures(results, records)
    write_page(tmp_path / "out.html", "t", results, records)
    page = (tmp_path / "out.html").read_text()
    for text in ("queue_full", "rival &lt;b&gt;", "Time to first token", "What tenants got", "0.125"):
        assert text in page
    assert "rival <b>" not in page


def test_a_report_is_written_where_nothing_was_answered(tmp_path: Path) -> None:
    results = Results("replay")
    trace = {"name": "t", "requests": 1, "cut": 0, "too_long": 0, "empty": 0, "context": 100, "model": "fake"}
    results.add_value("replay.trace", trace)
    results.add_value("replay.not_due", 0)
    records = [record("acme", 0.5)]
    add_figures(results, records)
    write_page(tmp_path / "out.html", "t", results, records)
    assert "queue_full" in (tmp_path / "out.html").read_text()


async def test_interrupted_it_leaves_what_it_has_measured(fake: FakeServer, tmp_path: Path) -> None:
    second = asyncio.Event()

    async def behave(body: dict[str, Any], write: Write) -> None:
        if len(body["prompt"]) == 22:
            await write(event({"choices": [{"text": "a"}]}))
            second.set()
            await asyncio.sleep(60)
        await answer(body, write)

    fake.behave = behave
    (tmp_path / "keys.json").write_text(json.dumps(KEYS))
    rows = ((0.0, "acme", 21, 3), (1.5, "rival", 22, 3), (900.0, "acme", 23, 3))
    command = [
        *(sys.executable, "-m", "bench", "replay", "--trace", str(arena_file(tmp_path / "t.csv", *rows))),
        *("--url", f"http://127.0.0.1:{fake.port}", "--keys", str(tmp_path / "keys.json")),
        *("--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html")),
    ]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(60):
            await second.wait()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    document = (tmp_path / "out.json").read_text()
    assert "pgd_" not in document + (tmp_path / "out.html").read_text()
    written = json.loads(document)
    found = {result["name"]: result["value"] for result in written["results"]}
    assert written["incomplete"] == "interrupted"
    assert found["replay.requests"] == {"asked": 2, "answered": 1, "failed": 0, "unfinished": 1}
    assert found["replay.not_due"] == 1
    assert found["replay.hit_ratio"] == pytest.approx(10 / 21)


def test_an_engine_that_does_not_start_ends_the_replay_with_the_command_to_try() -> None:
    chosen = asked("--trace", "law:alpaca", "--rate", "9", "--model", "echo", "--engine", "--block-size 999")
    with pytest.raises(SystemExit, match=r"did not start: the engine ended with status 2; try .* --block-size 999"):
        benchmark.run(Results("replay"), chosen)


@pytest.mark.slow
async def test_two_tenants_of_a_real_installation_find_their_own_prefix_and_never_the_others() -> None:
    """All prompts begin with the same 341 tokens; the cache has whole blocks of 16."""
    chosen = asked("--trace", "law:wmt16", "--requests", "12", "--rate", "3", "--model", "echo", "--tenants", "2")
    results, records = Results("replay"), list[Record]()
    requests = benchmark.trace_of(chosen, random.Random(3))
    await benchmark.replay(results, chosen, requests, records, seed=3)
    assert [record.outcome for record in records] == [""] * 12
    assert [record.written_tokens for record in records] == [request.output_tokens for request in requests]
    for tenant in ("tenant-1", "tenant-2"):
        first, *later = [record for record in records if record.tenant == tenant]
        assert first.cached_tokens == 0
        assert [record.cached_tokens for record in later] == [336] * 5
