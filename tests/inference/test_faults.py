"""What fails, fails for its own request: the engine and everybody else go on."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Sequence

import pytest

from pagoda_inference import daemon, logs
from pagoda_inference.client import EngineRefused
from pagoda_inference.model.backend import Chunk, ChunkError
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.protocol import ChatMessage
from tests.inference.running_engine import Tenant, read

POISON = ord("%")
CANARY = "swordfish"


class FaultyBackend(EchoBackend):
    """Fails as ``fault`` says whenever a poisoned token is in the step."""

    fault = "raise"

    def run(self, chunks: Sequence[Chunk]) -> list[int | ChunkError | None]:
        poisoned = [POISON in chunk.token_ids for chunk in chunks]
        if any(poisoned) and self.fault == "raise":
            raise RuntimeError(f"device-side fault near {CANARY}")
        results = super().run(chunks)
        if self.fault == "chunk error":
            return [ChunkError(CANARY) if bad else result for bad, result in zip(poisoned, results, strict=True)]
        return [*results, 1] if any(poisoned) and self.fault == "wrong count" else results


class FragileTokenizer(EchoTokenizer):
    """Its detokenizer and its encoder choke on a poisoned text."""

    def encode(self, text: str) -> list[int]:
        if "&" in text:
            raise KeyError(text)
        return super().encode(text)

    def detokenizer(self):
        inner = super().detokenizer()
        feed = inner.feed
        if FaultyBackend.fault == "detokenizer":
            inner.feed = lambda token: feed(token) if token < 0x80 else 1 / 0
        if FaultyBackend.fault == "flush":
            inner.flush = lambda: 1 / 0
        return inner


@pytest.fixture
def captured_logs():
    """All log lines, as the daemon would write them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("pagoda_inference")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
async def faulty(start_engine, monkeypatch, request, captured_logs):
    """Two tenants of an engine that fails as the test's parameter says."""
    monkeypatch.setattr(FaultyBackend, "fault", request.param)

    def load(model: str, *, block_size: int, pool_tokens: int, **_: object):
        # A step is long enough for a cancel to come before the answer's end.
        return FaultyBackend(block_size=block_size, pool_tokens=pool_tokens, step_ms=1), FragileTokenizer(), "faulty"

    monkeypatch.setattr(daemon, "load_model", load)
    engine = await start_engine()
    return engine, Tenant("acme", await engine.client()), Tenant("rival", await engine.client())


@pytest.mark.parametrize("faulty", ["raise", "chunk error", "wrong count"], indirect=True)
async def test_only_the_guilty_request_of_a_step_fails(faulty):
    engine, acme, rival = faulty
    alone = await rival.answer("innocent", max_tokens=40, ignore_eos=True)
    innocent = [rival.start("innocent", max_tokens=40, ignore_eos=True) for _ in range(4)]
    guilty = [acme.start("100 %", max_tokens=40, ignore_eos=True) for _ in range(2)]
    for answer in await asyncio.gather(*map(read, innocent)):
        assert answer.token_ids == alone.token_ids
    for answer in await asyncio.gather(*map(read, guilty)):
        assert answer.finished.reason == "error"
        assert answer.finished.error.code == "model_error"
        assert CANARY not in answer.finished.error.message
    assert (await acme.answer("fine again", max_tokens=3)).finished.reason == "length"
    report = await engine.report()
    assert report.free + sum(account.cached for account in report.accounts) == report.total


@pytest.mark.parametrize("faulty", ["detokenizer"], indirect=True)
async def test_a_text_that_cannot_be_decoded_fails_alone(faulty):
    _, acme, _ = faulty
    answers = await asyncio.gather(*(acme.answer(f"{n}", max_tokens=60, ignore_eos=True) for n in range(4)))
    assert {answer.finished.reason for answer in answers} == {"error"}
    answer = await acme.answer(max_tokens=1)
    assert answer.finished.usage.output_tokens == 1


@pytest.mark.parametrize("faulty", ["flush"], indirect=True)
async def test_a_generation_whose_held_text_cannot_be_decoded_can_still_be_cancelled(faulty):
    _, acme, rival = faulty
    running = acme.start(max_tokens=1500, ignore_eos=True)
    await read(running, 5)
    await acme.client.cancel(running.id, "acme")
    assert (await read(running)).finished.reason == "cancelled"
    assert (await rival.answer(max_tokens=3)).finished.reason == "error"


@pytest.mark.parametrize("faulty", ["none"], indirect=True)
async def test_a_prompt_that_cannot_be_tokenised_is_refused(faulty):
    _, acme, _ = faulty
    for prompt in ("R&D", "R&D " * 3000):
        with pytest.raises(EngineRefused, match="could not be tokenised"):
            await acme.answer(prompt)
    assert (await acme.answer("fine", max_tokens=3)).finished.reason == "length"


@pytest.mark.parametrize("faulty", ["raise", "chunk error", "detokenizer", "none"], indirect=True)
async def test_no_log_line_holds_a_prompt_or_an_answer(faulty, captured_logs):
    _, acme, rival = faulty
    for prompt in (f"{CANARY} %", f"{CANARY} &", f"{CANARY} fine"):
        try:
            await acme.answer(prompt, max_tokens=40, ignore_eos=True)
        except EngineRefused:
            continue
    with pytest.raises(EngineRefused):
        await acme.answer(messages=(ChatMessage("user", CANARY),), continue_final=True)
    answer = await rival.answer("fine", max_tokens=40, ignore_eos=True)
    lines = captured_logs()
    text = json.dumps(lines, ensure_ascii=False)
    assert CANARY not in text
    assert len(answer.text) < 12 or answer.text[:12] not in text
    events = {line["event"] for line in lines}
    assert "generation_finished" in events
    finished = [line for line in lines if line["event"] == "generation_finished"][-1]
    assert finished["account"] == "rival"
    assert {"id", "prompt_tokens", "cached_tokens", "output_tokens", "queued_s", "decode_s", "reason"} <= set(finished)


@pytest.mark.parametrize("faulty", ["raise"], indirect=True)
async def test_a_failure_is_logged_with_its_type_and_place(faulty, captured_logs):
    _, acme, _ = faulty
    await acme.answer("100 %", id="guilty")
    failure = next(line for line in captured_logs() if line["event"] == "generation_failed")
    assert failure["id"] == "guilty"
    assert "RuntimeError" in failure["error_type"]
    assert any("in run" in place or " run" in place for place in failure["at"])
