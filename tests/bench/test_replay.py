"""A replay keeps a trace's arrivals and each tenant's key, and counts what fails."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.replay import benchmark
from bench.replay.benchmark import Replayed
from bench.replay.figures import add_figures
from bench.replay.record import Record
from bench.replay.sending import Sender
from bench.results import Results
from bench.traces.content import Content
from bench.traces.request import TracedRequest
from tests.bench.fake_server import KEYS, Asked, FakeServer, Write, answer, event, usage
from tests.bench.replaying import arena_file, asked, traced

ROOT = Path(__file__).resolve().parents[2]


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
    request = traced(0.0)
    record = Record(request.client, request.prompt_tokens, request.output_tokens, request.at_s)

    async def slowly(body: dict[str, Any], write: Write) -> None:
        await asyncio.sleep(0.2)
        await write(event({"choices": [{"text": "a"}]}))
        while not record.text_s:  # noqa: ASYNC110  (the time between two texts begins when the first is noted)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        await write(event({"choices": [{"text": "b"}]}))
        await write(usage(3, cached=5))

    fake.behave = slowly
    await Sender(fake.server, KEYS, Content(1, 0, 255), 20).replay([request], [record])
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
    records = await replayed(fake, [traced(0.0, length, "rival") for length in lengths], timeout_s=10)
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
    page = (tmp_path / "out.html").read_text()
    assert "pgd_" not in document + page
    assert "The replay did not come to its end: interrupted" in page
    written = json.loads(document)
    found = {result["name"]: result["value"] for result in written["results"]}
    assert written["incomplete"] == "interrupted"
    assert found["replay.requests"] == {"asked": 2, "answered": 1, "failed": 0, "unfinished": 1}
    assert found["replay.not_due"] == 1
    assert found["replay.hit_ratio"] == pytest.approx(10 / 21)


@pytest.mark.slow
async def test_two_tenants_of_a_real_installation_find_their_own_prefix_and_never_the_others() -> None:
    """All prompts begin with the same 341 tokens; the cache has whole blocks of 16."""
    chosen = asked("--trace", "law:wmt16", "--requests", "12", "--rate", "3", "--model", "echo", "--tenants", "2")
    replayed = Replayed()
    requests = benchmark.trace_of(chosen, random.Random(3))
    await benchmark.replay(chosen, requests, 3, replayed)
    records = replayed.records
    assert [record.outcome for record in records] == [""] * 12
    assert [record.written_tokens for record in records] == [request.output_tokens for request in requests]
    for tenant in ("tenant-1", "tenant-2"):
        first, *later = [record for record in records if record.tenant == tenant]
        assert first.cached_tokens == 0
        assert [record.cached_tokens for record in later] == [336] * 5
