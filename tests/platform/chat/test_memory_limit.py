"""An answer that grows to all the memory that its tenant can have: what ended it is told, and kept."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from chat_sockets import Socket
from engine_at_hand import echo

from pagoda.asgi import application

QUESTION = "x" * 100


@pytest.fixture
def engine_options() -> dict[str, Any]:
    """Eight blocks: the question fits, with its answer it does not."""
    return {"pool_tokens": 128}


async def test_an_answer_cut_by_the_memory_limit_says_so(socket: Socket) -> None:
    created = await socket.ask(QUESTION)
    answer = await socket.read_answer(created["generation_id"])
    assert answer.finished is not None
    assert 0 < len(answer.text) < len(echo(QUESTION)[1])
    assert (answer.state, answer.finished["finish_reason"]) == ("complete", "length")
    assert answer.finished["error"]["code"] == "kv_limit_exceeded"
    assert answer.finished["error"]["details"] == {"limit_blocks": 8, "block_size": 16}
    opened = await socket.request(
        "conversation.open", "conversation.opened", conversation_id=created["conversation"]["id"]
    )
    shown = opened["messages"][1]
    assert (shown["content"], shown["error"]) == (answer.text, answer.finished["error"])


async def test_continuing_it_fails_and_keeps_the_text(socket: Socket) -> None:
    created = await socket.ask(QUESTION)
    first = await socket.read_answer(created["generation_id"])
    message_id = created["assistant_message"]["id"]
    continued = await socket.request(
        "message.continue", "message.created", client_id="continue-1", message_id=message_id
    )
    again = await socket.read_answer(continued["generation_id"])
    assert again.finished is not None
    assert (again.state, again.finished["error"]["code"]) == ("failed", "kv_limit_exceeded")
    opened = await socket.request(
        "conversation.open", "conversation.opened", conversation_id=created["conversation"]["id"]
    )
    assert opened["messages"][1]["content"] == first.text


async def test_an_answer_cut_by_max_tokens_names_no_limit(rival_socket: Socket) -> None:
    created = await rival_socket.ask(QUESTION, sampling={"max_tokens": 3})
    answer = await rival_socket.read_answer(created["generation_id"])
    assert answer.finished is not None
    assert (answer.finished["finish_reason"], answer.finished["error"]) == ("length", None)


async def test_through_the_api_it_ends_with_length_and_is_no_failure(web: str, make_key: Any, acme: Any) -> None:
    _, text = await make_key(acme)
    transport = httpx.ASGITransport(app=application)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(
            "/v1/chat/completions",
            headers={"authorization": f"Bearer {text}"},
            json={"model": "echo", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0},
        )
    assert answer.status_code == 200
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "length"
    assert 0 < len(choice["message"]["content"]) < len(echo(QUESTION)[1])
