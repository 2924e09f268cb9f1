"""Texts that fit no context: refused with numbers, and before anybody tokenises them; what may fit is tokenised."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from asking import chat, text

from pagoda.api import served_models, tokenizing
from pagoda.api.errors import ApiError
from pagoda.engines import connections
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.protocol import ChatMessage, ModelInfo

CONTEXT = 4096
MOST = CONTEXT * EchoTokenizer.longest_token
SYSTEM = {"role": "system", "content": "x" * (MOST // 2)}
TOOL = {"type": "function", "function": {"name": "f", "description": "x" * MOST}}


def asked(long: str) -> dict[str, tuple[str, dict[str, Any], str]]:
    """Everything that tokenises what it is sent: address, body, and the field that is to be named."""
    turns = [{"role": "user", "content": long}]
    parts = [{"type": "text", "text": long[: len(long) // 2]}, {"type": "text", "text": long[len(long) // 2 + 1 :]}]
    return {
        "chat": ("/chat/completions", chat(long), "messages"),
        "a stream": ("/chat/completions", chat(long, stream=True), "messages"),
        "parts": ("/chat/completions", chat(messages=[{"role": "user", "content": parts}]), "messages"),
        "completion": ("/completions", text(long), "prompt"),
        "the last prompt": ("/completions", text(["x", long]), "prompt"),
        "response": ("/responses", {"model": "echo", "input": long}, "input"),
        "instructions": ("/responses", {"model": "echo", "input": "x", "instructions": long}, "input"),
        "tokens of a text": ("/tokenize", {"model": "echo", "prompt": long}, "prompt"),
        "tokens of a conversation": ("/tokenize", {"model": "echo", "messages": turns}, "messages"),
    }


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters of what the engine was asked to tokenise."""
    seen: list[int] = []
    encode, encode_chat = EchoTokenizer.encode, EchoTokenizer.encode_chat

    def note(self: EchoTokenizer, given: str) -> list[int]:
        seen.append(len(given))
        return encode(self, given)

    def note_chat(self: EchoTokenizer, messages: Any, continue_final: bool = False) -> list[int]:
        seen.append(sum(len(message.content) for message in messages))
        return encode_chat(self, messages, continue_final)

    monkeypatch.setattr(EchoTokenizer, "encode", note)
    monkeypatch.setattr(EchoTokenizer, "encode_chat", note_chat)
    return seen


@pytest.mark.parametrize("what", asked(""))
async def test_what_can_fit_no_context_is_refused_before_it_is_tokenised(
    http: Any, tokenised: list[int], what: str
) -> None:
    path, body, param = asked("x" * (MOST + 1))[what]
    answer = await http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
    assert all(str(number) in error["message"] for number in (CONTEXT, EchoTokenizer.longest_token, MOST))
    assert tokenised == []


@pytest.mark.parametrize("what", asked(""))
async def test_what_may_fit_is_tokenised(http: Any, tokenised: list[int], what: str) -> None:
    """The longest such text. The tokens of this model are bytes, so that it does not fit after all."""
    path, body, _ = asked("x" * (MOST - 1))[what]
    answer = await http.post(path, json=body)
    assert max(tokenised) >= MOST - 1
    if path == "/tokenize":
        assert answer.status_code == 200
    else:
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert "characters" not in answer.json()["error"]["message"]


async def test_all_messages_and_functions_count_together(http: Any, tokenised: list[int]) -> None:
    half = [SYSTEM, {"role": "user", "content": SYSTEM["content"] + "x"}]
    for body in (chat(messages=half), chat(tools=[TOOL])):
        answer = await http.post("/chat/completions", json=body)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert tokenised == []


async def test_the_largest_body_of_one_message_is_not_tokenised(http: Any, tokenised: list[int]) -> None:
    answer = await http.post("/chat/completions", json=chat("word " * 2_700_000))
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert str(13_500_000) in answer.json()["error"]["message"]
    assert tokenised == []


async def test_engines_say_how_long_their_longest_token_is(http: Any, engine: str) -> None:
    model = connections.model_of(engine)
    assert model is not None
    assert model.longest_token == EchoTokenizer.longest_token


async def test_a_vocabulary_with_longer_tokens_takes_longer_texts(
    http: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = connections.model_of(engine)
    assert model is not None
    longer = msgspec.structs.replace(model, longest_token=2 * model.longest_token)
    monkeypatch.setattr(served_models, "find_model", lambda name: longer)
    answer = await http.post("/tokenize", json={"model": "echo", "prompt": "x" * (MOST + 1)})
    assert (answer.status_code, answer.json()["count"]) == (200, MOST + 1)


def test_refusing_takes_less_than_a_millisecond() -> None:
    model = ModelInfo("m", 8192, 49152, "float32", "cpu", 16, 512, 1, "i", longest_token=128)
    turns = [ChatMessage("user", "word " * 1_350_000), ChatMessage("assistant", "word " * 1_350_000)]
    seconds = []
    for _ in range(20):
        begun = time.perf_counter()
        with pytest.raises(ApiError, match="13500000 characters"):
            tokenizing.check_turns(turns, model, "messages")
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.001
