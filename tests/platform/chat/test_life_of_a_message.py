"""From a question to its stored answer, and everything a client may do meanwhile."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Answer, Socket, client_id
from engine_at_hand import echo, long_question

from pagoda.chat.consumer import ChatConsumer
from pagoda.chat.models import Conversation, Message
from pagoda.generations.models import Generation
from pagoda.usage.models import UsageRecord

OpenSocket = Callable[..., Awaitable[Socket]]

slowly = pytest.mark.parametrize("step_ms", [150.0], ids=["slowly"])
"""A long answer takes 25 seconds and more: it is still being written when something else happens."""


@pytest.fixture
def step_ms() -> float:
    return 2


async def stored_message(message_id: str) -> Message:
    query = Message.across_tenants.select_related("generation", "conversation")
    return await database_sync_to_async(query.get)(pk=message_id)


async def counts(tenant_id: Any) -> tuple[int, int, int]:
    """Conversations, messages and generations of a tenant."""

    def count() -> tuple[int, int, int]:
        kinds = (Conversation, Message, Generation)
        return tuple(kind.across_tenants.filter(tenant_id=tenant_id).count() for kind in kinds)  # type: ignore[return-value]

    return await database_sync_to_async(count)()


async def test_an_answer_is_streamed_and_stored_exactly_as_it_was_streamed(socket: Socket) -> None:
    created = await socket.ask("Hello")
    answer = await socket.read_answer(created["generation_id"])
    stored = await stored_message(created["assistant_message"]["id"])
    assert answer.kinds()[0] == "started"
    assert answer.kinds()[-1] == "finished"
    assert answer.text == echo("Hello")[1]
    assert stored.content == answer.text
    assert stored.state == answer.state == "complete"
    assert answer.doubled == 0
    assert answer.finished is not None
    assert answer.finished["seq"] == answer.seq + 1
    assert answer.finished["finish_reason"] == "stop"
    assert answer.finished["usage"]["prompt_tokens"] == echo("Hello")[0]
    assert {event["message_id"] for event in answer.events} == {str(stored.pk)}


async def test_what_is_created_is_told_in_full(socket: Socket) -> None:
    created = await socket.ask("Hello", client_id="a client's id")
    question, answer = created["user_message"], created["assistant_message"]
    assert created["client_id"] == "a client's id"
    assert created["repeated"] is False
    assert created["conversation"]["title"] == ""
    assert question["role"] == "user"
    assert question["content"] == "Hello"
    assert question["state"] == "complete"
    assert question["parent_id"] is None
    assert question["generation"] is None
    assert answer["role"] == "assistant"
    assert answer["state"] == "streaming"
    assert answer["parent_id"] == question["id"]
    assert answer["conversation_id"] == created["conversation"]["id"]
    assert answer["generation"] == {"id": created["generation_id"], "seq": 0, "offset": 0}
    assert answer["usage"] is answer["finish_reason"] is answer["error"] is None


async def test_usage_is_recorded_once_for_the_tenant_and_the_member(socket: Socket, acme: Any) -> None:
    created = await socket.ask("Hello")
    answer = await socket.read_answer(created["generation_id"])
    record = await database_sync_to_async(UsageRecord.across_tenants.get)(generation_id=created["generation_id"])
    assert answer.finished is not None
    assert (record.tenant_id, record.user_id, record.purpose) == (acme.tenant.pk, acme.member.pk, "chat")
    assert record.output_tokens == answer.finished["usage"]["output_tokens"]
    assert record.model == "echo"


async def test_finished_is_told_after_the_result_is_stored(socket: Socket) -> None:
    created = await socket.ask("Hello")
    await socket.read_answer(created["generation_id"])
    opened = await socket.request(
        "conversation.open", "conversation.opened", conversation_id=created["conversation"]["id"]
    )
    assert opened["messages"][1]["state"] == "complete"


@slowly
async def test_a_refresh_in_the_middle_of_an_answer_loses_and_doubles_nothing(
    socket: Socket, open_socket: OpenSocket, acme: Any, hurry: Callable[[], None]
) -> None:
    question = long_question()
    created = await socket.ask(question)
    await socket.read_until(created["generation_id"], 10)
    await socket.close()
    again = await open_socket(acme.member)
    opened = await again.request(
        "conversation.open", "conversation.opened", conversation_id=created["conversation"]["id"]
    )
    shown = opened["messages"][1]
    assert shown["state"] == "streaming"
    answer = Answer(text=shown["content"], seq=shown["generation"]["seq"])
    hurry()
    await again.read_answer(created["generation_id"], answer)
    assert answer.text == echo(question)[1]
    assert answer.doubled == 0
    assert (await stored_message(shown["id"])).content == answer.text


async def test_a_client_that_remembers_its_seq_goes_on_from_there(
    socket: Socket, open_socket: OpenSocket, acme: Any
) -> None:
    question = long_question()
    created = await socket.ask(question)
    answer = await socket.read_until(created["generation_id"], 30)
    await socket.close()
    again = await open_socket(acme.member)
    await again.send("generation.attach", generation_id=created["generation_id"], after_seq=answer.seq)
    await again.read_answer(created["generation_id"], answer)
    assert answer.text == echo(question)[1]
    assert answer.doubled == 0


async def test_two_tabs_hear_the_same_answer(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    question = long_question()
    second = await open_socket(acme.member)
    created = await socket.ask(question)
    first_part = await socket.read_until(created["generation_id"], 20)
    await second.send("generation.attach", generation_id=created["generation_id"])
    answers = await asyncio.gather(
        socket.read_answer(created["generation_id"], first_part), second.read_answer(created["generation_id"])
    )
    assert [answer.text for answer in answers] == [echo(question)[1]] * 2


async def test_an_answer_is_written_although_nobody_listens(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    question = long_question()
    created = await socket.ask(question)
    await socket.close()
    again = await open_socket(acme.member)
    await again.send("generation.attach", generation_id=created["generation_id"], after_seq=3)
    await again.read_answer(created["generation_id"], Answer(seq=3))
    assert (await stored_message(created["assistant_message"]["id"])).content == echo(question)[1]


@pytest.mark.parametrize("error", [OSError, RuntimeError])
async def test_a_client_that_vanishes_leaves_no_error_in_the_log(
    socket: Socket,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gc.collect()  # what other tests have left says so now
    caplog.clear()
    question = long_question()
    created = await socket.ask(question)
    await socket.read_until(created["generation_id"], 5)

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(ChatConsumer, "send", fail)
    async with asyncio.timeout(60):
        while (await stored_message(created["assistant_message"]["id"])).state == "streaming":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await stored_message(created["assistant_message"]["id"])).content == echo(question)[1]
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_finished_answer_can_be_attached_to(socket: Socket) -> None:
    created = await socket.ask("Hello")
    first = await socket.read_answer(created["generation_id"])
    await socket.send("generation.attach", generation_id=created["generation_id"])
    again = await socket.read_answer(created["generation_id"])
    assert again.kinds() == ["snapshot", "finished"]
    assert again.text == first.text
    assert again.finished == first.finished
    await socket.send("generation.attach", generation_id=created["generation_id"], after_seq=again.seq)
    assert (await socket.read_answer(created["generation_id"])).kinds() == ["finished"]


async def test_a_detached_socket_hears_no_more(socket: Socket) -> None:
    created = await socket.ask(long_question())
    await socket.read_until(created["generation_id"], 5)
    await socket.send("generation.detach", generation_id=created["generation_id"])
    await socket.request("ping", "pong")
    socket.unread.clear()
    await asyncio.sleep(0.1)
    await socket.request("ping", "pong")
    assert [message for message in socket.unread if message["type"].startswith("generation.")] == []


@slowly
async def test_stop_ends_the_answer_with_a_receipt(socket: Socket) -> None:
    created = await socket.ask(long_question())
    answer = await socket.read_until(created["generation_id"], 10)
    stopping = await socket.request("generation.stop", "generation.stopping", generation_id=created["generation_id"])
    assert stopping["generation_id"] == created["generation_id"]
    await socket.read_answer(created["generation_id"], answer)
    assert answer.finished is not None
    assert answer.state == answer.finished["finish_reason"] == "cancelled"
    assert answer.finished["usage"]["blocks_freed"] > 0
    stored = await stored_message(created["assistant_message"]["id"])
    assert stored.state == "cancelled"
    assert stored.content == answer.text


@slowly
async def test_stop_from_a_tab_that_is_not_attached_gives_it_the_receipt(
    socket: Socket, open_socket: OpenSocket, acme: Any
) -> None:
    created = await socket.ask(long_question())
    await socket.read_until(created["generation_id"], 10)
    second = await open_socket(acme.member)
    await second.request("generation.stop", "generation.stopping", generation_id=created["generation_id"])
    receipt = await second.next_event(created["generation_id"])
    assert receipt["type"] == "generation.finished"
    assert receipt["state"] == "cancelled"


@slowly
async def test_stop_at_once_stops_before_the_answer_begins(socket: Socket) -> None:
    for _ in range(5):
        created = await socket.ask(long_question())
        await socket.send("generation.stop", generation_id=created["generation_id"])
        answer = await socket.read_answer(created["generation_id"])
        assert answer.state == "cancelled"


async def test_stopping_a_finished_answer_changes_nothing(socket: Socket) -> None:
    created = await socket.ask("Hello")
    first = await socket.read_answer(created["generation_id"])
    await socket.request("generation.stop", "generation.stopping", generation_id=created["generation_id"])
    assert (await socket.next_event(created["generation_id"])) == first.finished


async def test_the_same_client_id_again_gives_the_same_rows(socket: Socket, acme: Any) -> None:
    name = client_id()
    first = await socket.ask("Hello", client_id=name)
    await socket.read_answer(first["generation_id"])
    again = await socket.ask("Something else", client_id=name)
    assert again["repeated"] is True
    assert again["user_message"] == first["user_message"]
    assert again["generation_id"] == first["generation_id"]
    assert again["assistant_message"]["state"] == "complete"
    answer = await socket.read_answer(first["generation_id"])
    assert answer.kinds() == ["snapshot", "finished"]
    assert await counts(acme.tenant.pk) == (1, 2, 1)


async def test_the_same_client_id_from_many_sockets_at_once_makes_one_pair_of_rows(
    open_socket: OpenSocket, acme: Any
) -> None:
    sockets = [await open_socket(acme.member) for _ in range(4)]
    name = client_id()
    created = await asyncio.gather(*(each.ask("Hello", client_id=name) for each in sockets))
    assert len({each["generation_id"] for each in created}) == 1
    assert sorted(each["repeated"] for each in created) == [False, True, True, True]
    answers = await asyncio.gather(*(each.read_answer(created[0]["generation_id"]) for each in sockets))
    assert {answer.text for answer in answers} == {echo("Hello")[1]}
    assert await counts(acme.tenant.pk) == (1, 2, 1)


async def test_the_client_id_of_a_deleted_conversation_finds_nothing(socket: Socket, acme: Any) -> None:
    name = client_id()
    created = await socket.ask("Hello", client_id=name)
    await socket.read_answer(created["generation_id"])
    conversation_id = created["conversation"]["id"]
    await socket.request("conversation.delete", "conversation.deleted", conversation_id=conversation_id)
    error = await socket.refusal("message.create", client_id=name, content="Hello")
    assert (error["code"], error["field"]) == ("not_found", "client_id")
    assert await counts(acme.tenant.pk) == (1, 2, 1)


async def test_two_members_may_choose_the_same_client_id(
    socket: Socket, open_socket: OpenSocket, rival_socket: Socket, acme: Any, rival: Any
) -> None:
    admin = await open_socket(acme.admin)
    created = [await each.ask("Hello", client_id="the same id") for each in (socket, admin, rival_socket)]
    assert len({each["generation_id"] for each in created}) == 3
    assert await counts(acme.tenant.pk) == (2, 4, 2)
    assert await counts(rival.tenant.pk) == (1, 2, 1)


async def test_a_conversation_goes_on_with_everything_before_it(socket: Socket) -> None:
    first = await socket.ask("Hello")
    answer = await socket.read_answer(first["generation_id"])
    second = await socket.ask(
        "And then?",
        conversation_id=first["conversation"]["id"],
        parent_id=first["assistant_message"]["id"],
    )
    assert second["user_message"]["parent_id"] == first["assistant_message"]["id"]
    started = await socket.next_event(second["generation_id"])
    # The echo model's template: a marker and an end around each turn.
    expected = sum(len(text.encode()) + 2 for text in ("Hello", answer.text, "And then?")) + 1
    assert started["prompt_tokens"] == expected
    assert started["cached_tokens"] >= (echo("Hello")[0] - 1) // 16 * 16


async def test_an_edited_question_is_an_alternative_beside_the_first(socket: Socket) -> None:
    first = await socket.ask("Hello")
    await socket.read_answer(first["generation_id"])
    conversation_id = first["conversation"]["id"]
    edited = await socket.ask("Hello there", conversation_id=conversation_id, parent_id=None)
    await socket.read_answer(edited["generation_id"])
    opened = await socket.request("conversation.open", "conversation.opened", conversation_id=conversation_id)
    questions = [each for each in opened["messages"] if each["role"] == "user"]
    assert [each["content"] for each in questions] == ["Hello", "Hello there"]
    assert {each["parent_id"] for each in questions} == {None}


async def test_another_answer_is_a_sibling_of_the_first(socket: Socket) -> None:
    first = await socket.ask("Hello")
    await socket.read_answer(first["generation_id"])
    name = client_id()
    message_id = first["assistant_message"]["id"]
    again = await socket.request(
        "message.regenerate", "message.created", client_id=name, message_id=message_id, sampling={"temperature": 0}
    )
    assert again["user_message"] is None
    assert again["assistant_message"]["id"] != message_id
    assert again["assistant_message"]["parent_id"] == first["user_message"]["id"]
    answer = await socket.read_answer(again["generation_id"])
    assert answer.text == echo("Hello")[1]
    repeated = await socket.request("message.regenerate", "message.created", client_id=name, message_id=message_id)
    assert repeated["repeated"] is True
    assert repeated["assistant_message"]["id"] == again["assistant_message"]["id"]


@slowly
async def test_continue_completes_a_stopped_answer_in_the_same_message(
    socket: Socket, hurry: Callable[[], None]
) -> None:
    question = long_question()
    created = await socket.ask(question)
    first = await socket.read_until(created["generation_id"], 10)
    await socket.send("generation.stop", generation_id=created["generation_id"])
    await socket.read_answer(created["generation_id"], first)
    hurry()
    message_id = created["assistant_message"]["id"]
    continued = await socket.request(
        "message.continue",
        "message.created",
        client_id=client_id(),
        message_id=message_id,
        sampling={"temperature": 0},
    )
    shown = continued["assistant_message"]
    kept = first.text.rstrip("\ufffd")  # a Stop may come between the bytes of one character
    assert continued["user_message"] is None
    assert shown["id"] == message_id
    assert shown["content"] == kept
    assert shown["generation"]["offset"] == len(kept.encode("utf-16-le")) // 2
    assert continued["generation_id"] != created["generation_id"]
    rest = await socket.read_answer(continued["generation_id"])
    stored = await stored_message(message_id)
    assert stored.state == "complete"
    assert stored.content == kept + rest.text == echo(question)[1]


async def test_half_a_character_at_a_cut_is_written_anew(socket: Socket) -> None:
    question = long_question()
    text = echo(question)[1]
    cut = next(index for index, character in enumerate(text) if index > 10 and ord(character) > 0x7F)
    length = len(text[:cut].encode()) + 1
    created = await socket.ask(question, sampling={"temperature": 0, "max_tokens": length})
    first = await socket.read_answer(created["generation_id"])
    assert first.text == text[:cut] + "\ufffd"
    message_id = created["assistant_message"]["id"]
    continued = await socket.request(
        "message.continue",
        "message.created",
        client_id=client_id(),
        message_id=message_id,
        sampling={"temperature": 0},
    )
    assert continued["assistant_message"]["content"] == text[:cut]
    await socket.read_answer(continued["generation_id"])
    assert (await stored_message(message_id)).content == text


async def test_an_answer_ended_by_its_length_can_be_continued_and_a_complete_one_cannot(socket: Socket) -> None:
    question = long_question()
    created = await socket.ask(question, sampling={"temperature": 0, "max_tokens": 20})
    first = await socket.read_answer(created["generation_id"])
    assert first.finished is not None
    assert (first.state, first.finished["finish_reason"]) == ("complete", "length")
    fields = {"message_id": created["assistant_message"]["id"], "sampling": {"temperature": 0}}
    continued = await socket.request("message.continue", "message.created", client_id=client_id(), **fields)
    rest = await socket.read_answer(continued["generation_id"])
    assert first.text.rstrip("\ufffd") + rest.text == echo(question)[1]
    error = await socket.refusal("message.continue", client_id=client_id(), **fields)
    assert error["code"] == "conflict"


async def test_a_failed_answer_with_text_can_be_continued(socket: Socket, acme: Any, rival_socket: Socket) -> None:
    question = long_question()
    created = await socket.ask(question, sampling={"temperature": 0, "max_tokens": 20})
    first = await socket.read_answer(created["generation_id"])
    message_id = created["assistant_message"]["id"]

    def fail() -> None:
        Message.across_tenants.filter(pk=message_id).update(state="failed")
        Generation.across_tenants.filter(pk=created["generation_id"]).update(
            state="failed", finish_reason="error", error={"code": "model_error", "message": "It failed.", "details": {}}
        )

    await database_sync_to_async(fail)()
    fields = {"message_id": message_id, "sampling": {"temperature": 0}}
    assert (await rival_socket.refusal("message.continue", client_id=client_id(), **fields))["code"] == "not_found"
    continued = await socket.request("message.continue", "message.created", client_id=client_id(), **fields)
    rest = await socket.read_answer(continued["generation_id"])
    assert rest.state == "complete"
    assert first.text.rstrip("\ufffd") + rest.text == echo(question)[1]


async def test_of_two_that_continue_at_once_one_does(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    second = await open_socket(acme.member)
    created = await socket.ask(long_question(), sampling={"temperature": 0, "max_tokens": 20})
    await socket.read_answer(created["generation_id"])
    message_id = created["assistant_message"]["id"]
    for each in (socket, second):
        await each.send("message.continue", request_id="race", client_id=client_id(), message_id=message_id)

    async def outcome(each: Socket) -> str:
        while True:
            message = await each.receive()
            if message.get("request_id") == "race":
                return str(message.get("code", message["type"]))

    assert sorted(await asyncio.gather(outcome(socket), outcome(second))) == ["conflict", "message.created"]


async def test_characters_beyond_the_basic_plane_count_twice_in_the_offset(socket: Socket) -> None:
    created = await socket.ask(long_question(), sampling={"temperature": 0, "max_tokens": 60})
    first = await socket.read_answer(created["generation_id"])
    kept = first.text.rstrip("\ufffd")
    emoji = sum(ord(character) > 0xFFFF for character in kept)
    opened = await socket.request(
        "message.continue", "message.created", client_id=client_id(), message_id=created["assistant_message"]["id"]
    )
    assert opened["assistant_message"]["generation"]["offset"] == len(kept) + emoji


async def test_stop_strings_and_seeds_are_passed_on(socket: Socket) -> None:
    question = long_question()
    text = echo(question)[1]
    created = await socket.ask(question, sampling={"temperature": 0, "stop": [text[30:34]]})
    answer = await socket.read_answer(created["generation_id"])
    assert answer.text == text[: text.index(text[30:34])]
    sampling = {"temperature": 1.5, "top_p": 0.9, "seed": 7}
    twice = []
    for _ in range(2):
        created = await socket.ask(question, sampling=sampling)
        twice.append((await socket.read_answer(created["generation_id"])).text)
    assert twice[0] == twice[1] != text


async def test_a_top_p_of_0_is_the_most_probable_token_alone(socket: Socket) -> None:
    """As over REST, and at any temperature."""
    question = long_question()
    created = await socket.ask(question, sampling={"temperature": 1.5, "top_p": 0, "seed": 7})
    assert (await socket.read_answer(created["generation_id"])).text == echo(question)[1]


async def test_korean_and_emoji_survive_the_way_there_and_back(socket: Socket) -> None:
    content = '안녕하세요 🙂 한국의 수도는?\n\t"따옴표" \\ </script>'
    created = await socket.ask(content)
    answer = await socket.read_answer(created["generation_id"])
    assert created["user_message"]["content"] == content
    assert answer.text == echo(content)[1]
