"""What is published of a text: the tokens that everything which begins with it has in common."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.model.tokenizer import ChatTemplateError
from pagoda_inference.prefixes import prefix_tokens, resolve
from pagoda_inference.protocol import (
    ChatMessage,
    ModelInfo,
    Prefix,
    Publish,
    Published,
    PublishedPrefix,
    Purge,
    Purged,
)
from pagoda_inference.service import Service

SYSTEM = "You are the assistant of a library. Answer briefly."
LIBRARY = Prefix("library", messages=(ChatMessage("system", SYSTEM),))
SIZES = {"context_length": 512, "vocabulary_size": 260}


class MergingTokenizer(EchoTokenizer):
    """Like many real ones it makes one token of two line feeds, also where one belongs to the template."""

    def encode(self, text):
        tokens = super().encode(text)
        merged = []
        for token in tokens:
            if token == 10 and merged and merged[-1] == 10:
                merged[-1] = 300
            else:
                merged.append(token)
        return merged


@pytest.mark.parametrize("question", ["Where?", "  indented", "1 + 1", "안녕", "\n\nlate", "(a)"])
def test_every_conversation_that_begins_with_it_begins_with_its_tokens(question):
    tokenizer = EchoTokenizer()
    tokens = prefix_tokens(LIBRARY, tokenizer, 260)
    conversation = tokenizer.encode_chat([ChatMessage("system", SYSTEM), ChatMessage("user", question)])
    assert len(tokens) > len(SYSTEM)
    assert tuple(conversation[: len(tokens)]) == tokens


def test_a_token_that_reaches_over_its_end_is_not_part_of_it():
    tokens = prefix_tokens(Prefix("lines", text="end\n"), MergingTokenizer(), 400)
    assert tokens == tuple(b"end")


def test_tokens_are_taken_as_they_are_and_checked():
    assert prefix_tokens(Prefix("given", token_ids=(1, 2, 3)), EchoTokenizer(), 260) == (1, 2, 3)
    resolved = resolve(Publish(1, (Prefix("given", token_ids=(1, 999)),)), EchoTokenizer(), **SIZES)
    assert "0..259" in resolved.refused[0].error.message


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        (Prefix("both", text="a", token_ids=(1,)), "invalid_request"),
        (Prefix("nothing"), "invalid_request"),
        (Prefix("long", messages=(ChatMessage("system", "x" * 600),)), "context_length_exceeded"),
    ],
)
def test_one_that_is_wrong_is_refused_alone(prefix, code):
    resolved = resolve(Publish(3, (prefix, LIBRARY)), EchoTokenizer(), **SIZES)
    assert [each.id for each in resolved.publish.prefixes] == ["library"]
    assert [(each.id, each.error.code) for each in resolved.refused] == [(prefix.id, code)]


def test_a_template_without_system_turns_refuses_with_its_reason():
    class NoSystem(EchoTokenizer):
        def encode_chat(self, messages, continue_final=False):
            raise ChatTemplateError("no system turns here")

    resolved = resolve(Publish(1, (LIBRARY,)), NoSystem(), **SIZES)
    assert "no system turns here" in resolved.refused[0].error.message


class EngineAtHand:
    """Answers like an engine that publishes everything, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def publish(self, message):
        self.asked.append(message)
        held = tuple(
            PublishedPrefix(each.id, len(each.token_ids), len(each.token_ids) // 16) for each in message.prefixes
        )
        return done(Published(message.version, True, held))

    def purge(self, message):
        self.asked.append(message)
        return done(Purged(3, 2))


def done(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.fixture
def service():
    sizes = {"block_size": 16, "total_blocks": 64, "bytes_per_block": 320}
    info = ModelInfo("echo", 512, 260, "bytes", "cpu", **sizes, instance="i")
    service = Service(EngineAtHand(), EchoTokenizer(), info, GenerationStore())
    yield service
    service.close()


async def test_the_engine_gets_tokens_and_the_caller_hears_of_every_prefix(service):
    answer = await service.publish(Publish(7, (LIBRARY, Prefix("nothing"))))
    [asked] = service.engine.asked
    assert asked.prefixes[0].token_ids == prefix_tokens(LIBRARY, EchoTokenizer(), 260)
    assert (answer.version, answer.applied) == (7, True)
    assert {each.id: each.error is None for each in answer.prefixes} == {"library": True, "nothing": False}


async def test_what_is_deleted_is_purged(service):
    assert await service.purge(Purge("acme", ("one", "two"))) == Purged(3, 2)
    assert service.engine.asked == [Purge("acme", ("one", "two"))]
