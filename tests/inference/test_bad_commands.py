"""Whatever a caller sends: a refusal to that caller, and nothing else changes."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import msgspec
import pytest

from pagoda_inference import connection
from pagoda_inference.client import EngineRefused
from pagoda_inference.protocol import (
    Account,
    Cancel,
    ChatMessage,
    Frame,
    Grammar,
    Refused,
    SetAccounts,
    decoder,
    encode,
    method_path,
)
from tests.inference.running_engine import Tenant, raw_stream

BAD_SAMPLING = [
    {"max_tokens": 0},
    {"max_tokens": -1},
    {"temperature": -0.1},
    {"temperature": float("nan")},
    {"temperature": float("inf")},
    {"top_p": -0.1},
    {"top_p": 1.5},
    {"top_p": float("nan")},
    {"stop": ("",)},
    {"stop": ("x" * 5000,)},
    {"stop": tuple("abcdefghijklmnopqrstuvwxyz")},
    {"top_k": -1},
    {"min_p": -0.1},
    {"min_p": float("nan")},
    {"presence_penalty": 2.5},
    {"presence_penalty": float("nan")},
    {"frequency_penalty": -2.5},
    {"repetition_penalty": 0.0},
    {"repetition_penalty": float("inf")},
    {"logit_bias": ((5, 100.5),)},
    {"logit_bias": ((5, float("nan")),)},
    {"logit_bias": ((5, 1.0), (5, 2.0))},
    {"logit_bias": ((-1, 1.0),)},
    {"logit_bias": ((1 << 40, 1.0),)},
    {"logit_bias": tuple((token, 1.0) for token in range(2000))},
    {"logprobs": -1},
    {"logprobs": 21},
    {"logprobs": 1, "beam_width": 2},
    {"presence_penalty": 1.0, "beam_width": 2},
    {"grammar": Grammar("json_object"), "beam_width": 2},
    {"grammar": Grammar("json_object"), "ignore_eos": True},
    {"grammar": Grammar("json_object", "{}")},
    {"grammar": Grammar("regex")},
    {"grammar": Grammar("regex", "x" * 70_000)},
]
BAD_PROMPTS = [
    {"prompt": ""},
    {"messages": ()},
    {"messages": (ChatMessage("user", "hello"),), "continue_final": True},
    {"messages": (ChatMessage("user", "hello"),), "prompt_token_ids": (1,)},
    {"prompt_token_ids": ()},
    {"prompt_token_ids": (1, -1)},
    {"prompt_token_ids": (1, 1 << 40)},
    {"continue_final": True},
    {"scope": ""},
    {"id": "x" * 1000},
    {"scope": "x" * 1000},
]


@pytest.mark.parametrize("options", [*BAD_SAMPLING, *BAD_PROMPTS], ids=str)
async def test_an_invalid_generate_is_refused_and_says_why(acme, rival, options):
    other = rival.start(max_tokens=5, ignore_eos=True)
    with pytest.raises(EngineRefused) as refused:
        await acme.answer(**options)
    assert refused.value.error.code == "invalid_request"
    assert len(refused.value.error.message) > 20
    assert (await acme.answer(max_tokens=2)).finished.reason == "length"
    assert [event async for event in other]


async def test_a_refused_id_can_be_used_again(acme):
    with pytest.raises(EngineRefused):
        await acme.answer(id="g", max_tokens=0)
    assert (await acme.answer(id="g", max_tokens=2)).finished.reason == "length"


async def test_a_command_with_wrong_fields_is_refused_on_its_subscription(engine, acme):
    good = msgspec.to_builtins(acme.command(max_tokens=3))
    for number, change in enumerate(
        [{"sampling": {"max_tokens": "many"}}, {"prompt": 7}, {"type": "generous"}, {"account": None}], start=1
    ):
        async with raw_stream(engine.address) as stream:
            await stream.write(msgspec.msgpack.encode({"type": "generate", **good, "subscription": number, **change}))
            await stream.write(encode(acme.command(max_tokens=3)))
            frame = decoder(Frame)(await asyncio.wait_for(stream.read(), 60))
            delivery = frame.deliveries[0]
            assert delivery.subscription == number
            assert isinstance(delivery.replies[0], Refused)
            assert delivery.replies[0].error.code == "invalid_request"
            assert await asyncio.wait_for(stream.read(), 60), "the connection goes on"


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"hello", bytes(range(200, 255)), msgspec.msgpack.encode([1, 2])], ids=repr
)
async def test_bytes_that_are_no_command_end_that_call_alone(engine, acme, data):
    running = acme.start(max_tokens=30, ignore_eos=True)
    async with raw_stream(engine.address) as stream:
        await stream.write(data)
        assert await asyncio.wait_for(stream.code(), 60) is grpc.StatusCode.INVALID_ARGUMENT
    assert len([event async for event in running]) == 32


@pytest.mark.parametrize("method", ["SetAccounts", "Tokenize", "Detokenize"])
async def test_a_malformed_unary_message_is_an_invalid_argument(engine, acme, method):
    async with grpc.aio.insecure_channel(engine.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await channel.unary_unary(method_path(method))(b"\x81\xa1x")
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_caller_that_does_not_read_its_refusals_is_not_listened_to_until_it_does(engine, acme, monkeypatch):
    monkeypatch.setattr(connection, "MAX_REFUSALS", 100)
    count = 3000
    async with raw_stream(engine.address) as stream:

        async def send() -> None:
            for number in range(count):
                await stream.write(encode(Cancel(f"{number}" * 500, "acme")))

        sending = asyncio.create_task(send())
        assert (await acme.answer(max_tokens=200, ignore_eos=True)).finished.reason == "length"
        refusals: list[Refused] = []
        while len(refusals) < count:
            frame = decoder(Frame)(await asyncio.wait_for(stream.read(), 60))
            refusals += [reply for delivery in frame.deliveries for reply in delivery.replies]
        await sending
    assert [refusal.id for refusal in refusals] == [f"{number}" * 500 for number in range(count)]


async def test_a_subscription_number_in_use_is_refused(engine, acme):
    async with raw_stream(engine.address) as stream:
        for id in ("first", "second"):
            command = acme.command(id=id, max_tokens=1500, ignore_eos=True)
            await stream.write(encode(msgspec.structs.replace(command, subscription=1)))
        refusals: list[Refused] = []
        while not refusals:  # what the first has to say may come before it
            frame = decoder(Frame)(await asyncio.wait_for(stream.read(), 60))
            refusals = [reply for d in frame.deliveries for reply in d.replies if isinstance(reply, Refused)]
        assert [refusal.id for refusal in refusals] == ["second"]


async def test_detokenize_and_tokenize_refuse_what_makes_no_sense(acme):
    with pytest.raises(EngineRefused, match="token_ids"):
        await acme.client.detokenize((1, 1 << 50))
    with pytest.raises(EngineRefused, match="exactly one"):
        await acme.client.tokenize()
    with pytest.raises(EngineRefused):
        await acme.client.tokenize(messages=())


async def test_a_prompt_above_the_accounts_limit_is_refused_with_the_numbers(start_engine):
    engine = await start_engine()
    acme = Tenant("acme", await engine.client())
    await acme.client.set_accounts(SetAccounts(1, (Account("acme", limit=4), Account("rival"))))
    with pytest.raises(EngineRefused) as refused:
        await acme.answer("x" * 100)
    error = refused.value.error
    assert error.code == "kv_limit_exceeded"
    assert error.details["limit_blocks"] == 4
    assert error.details["needed_blocks"] == 8
    assert (await Tenant("rival", acme.client).answer("x" * 100, max_tokens=2)).finished.reason == "length"
