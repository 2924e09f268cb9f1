"""What a caller gets for a Generate."""

from __future__ import annotations

import asyncio

import pytest

from pagoda_inference.client import EngineRefused
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.model.tokenizer import LONGEST_TOKEN
from pagoda_inference.protocol import ChatMessage, Delta, Finished, Started
from tests.inference.running_engine import Tenant, read

LONG = "The pagoda has five storeys, and every one of them has a story to tell to whoever climbs it. "


async def test_events_come_in_order_and_numbered_without_gaps(acme, rival):
    answers = await asyncio.gather(*(tenant.answer(f"{n}") for n in range(8) for tenant in (acme, rival)))
    for answer in answers:
        assert answer.seqs == list(range(1, len(answer.events) + 1))
        kinds = [type(event) for event in answer.events]
        assert kinds == [Started, *[Delta] * (len(kinds) - 2), Finished]


async def test_the_pieces_joined_are_the_text_of_all_tokens(acme):
    answer = await acme.answer(max_tokens=150, ignore_eos=True)
    assert answer.text == (await acme.client.detokenize(answer.token_ids)).text
    assert any(not event.text for event in answer.events if isinstance(event, Delta)), "no character spans two tokens"


async def test_an_answer_ends_at_the_models_end(acme):
    answer = await acme.answer(messages=(ChatMessage("user", "안녕하세요? How are you?"),))
    assert answer.finished.reason == "stop"
    assert answer.finished.usage.output_tokens == len(answer.token_ids)


async def test_an_answer_ends_after_max_tokens(acme):
    answer = await acme.answer(max_tokens=7)
    assert answer.finished.reason == "length"
    assert len(answer.token_ids) == answer.finished.usage.output_tokens == 7


async def test_max_tokens_is_cut_to_what_the_context_leaves(start_engine):
    engine = await start_engine(context_length=64)
    tenant = Tenant("acme", await engine.client())
    answer = await tenant.answer("x" * 50, max_tokens=1000, ignore_eos=True)
    assert answer.finished.reason == "length"
    assert answer.finished.usage.output_tokens == 14


async def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(acme):
    whole = (await acme.answer(max_tokens=60, ignore_eos=True)).text
    stop = whole[20:24]
    answer = await acme.answer(max_tokens=60, ignore_eos=True, stop=("never seen", stop))
    assert answer.finished.reason == "stop"
    assert answer.text == whole[: whole.index(stop)]


async def test_text_held_for_a_stop_string_is_given_out_at_the_end(acme):
    whole = (await acme.answer(max_tokens=30, ignore_eos=True)).text
    answer = await acme.answer(max_tokens=30, ignore_eos=True, stop=(whole[-3:] + "\N{SNOWMAN}",))
    assert answer.finished.reason == "length"
    assert answer.text == whole


async def test_a_seed_repeats_and_greedy_is_the_same_beside_others(acme, rival):
    alone = await acme.answer(max_tokens=40, ignore_eos=True)
    beside, *_ = await asyncio.gather(
        acme.answer(max_tokens=40, ignore_eos=True), *(rival.answer(f"noise {n}" * 9) for n in range(6))
    )
    assert beside.token_ids == alone.token_ids
    sampled = [await acme.answer(max_tokens=40, temperature=1.0, seed=seed) for seed in (5, 5, 6)]
    assert sampled[0].token_ids == sampled[1].token_ids != sampled[2].token_ids


async def test_a_repeated_prompt_is_cached_for_its_tenant_and_for_nobody_else(acme, rival):
    tokens = len((await acme.client.tokenize(LONG)).token_ids)
    cold = await acme.answer(LONG)
    warm = await acme.answer(LONG)
    foreign = await rival.answer(LONG)
    assert cold.started.cached_tokens == 0
    assert warm.started.cached_tokens == (tokens - 1) // 16 * 16 > 0
    assert foreign.started.cached_tokens == 0
    assert cold.token_ids == warm.token_ids == foreign.token_ids


async def test_scopes_inside_an_account_share_nothing(acme):
    await acme.answer(LONG, scope="user:1")
    assert (await acme.answer(LONG, scope="user:2")).started.cached_tokens == 0
    assert (await acme.answer(LONG, scope="user:1")).started.cached_tokens > 0


async def test_the_next_turn_of_a_conversation_finds_the_whole_last_one(acme):
    turns = (ChatMessage("user", LONG),)
    first = await acme.answer(messages=turns, max_tokens=64, ignore_eos=True)
    turns = (*turns, ChatMessage("assistant", first.text), ChatMessage("user", "And then?"))
    second = await acme.answer(messages=turns)
    known = first.started.prompt_tokens + len(first.token_ids) - 1
    assert second.started.cached_tokens >= known // 16 * 16 - 16


async def test_an_unfinished_answer_is_continued(acme):
    question = (ChatMessage("user", "Tell me a story."),)
    whole = await acme.answer(messages=question)
    half = (*question, ChatMessage("assistant", whole.text[:10]))
    rest = await acme.answer(messages=half, continue_final=True)
    assert whole.text[:10] + rest.text == whole.text


async def test_a_second_generate_of_the_same_id_attaches(acme):
    first = acme.start(id="same", max_tokens=30, ignore_eos=True)
    second = acme.start("another prompt entirely", id="same", max_tokens=5)
    from_first, from_second = await asyncio.gather(read(first), read(second))
    assert from_first == from_second
    assert len(from_first.events) == 32


async def test_the_same_id_of_a_rival_is_another_generation(acme, rival):
    ours, theirs = await asyncio.gather(acme.answer("ours", id="same"), rival.answer("theirs, longer", id="same"))
    assert ours.started.prompt_tokens != theirs.started.prompt_tokens
    assert ours.text != theirs.text


async def test_times_and_counts_are_reported(start_engine):
    engine = await start_engine(step_ms=10)
    usage = (await Tenant("acme", await engine.client()).answer("abc", max_tokens=5)).finished.usage
    assert (usage.prompt_tokens, usage.output_tokens) == (3, 5)
    assert usage.prefill_s >= 0.009
    assert usage.decode_s >= 0.036
    assert usage.queued_s < 10


async def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers(start_engine):
    engine = await start_engine(context_length=64)
    with pytest.raises(EngineRefused) as refused:
        await Tenant("acme", await engine.client()).answer("x" * 64)
    assert refused.value.error.code == "context_length_exceeded"
    assert refused.value.error.details == {"prompt_tokens": 64, "context_length": 64}


async def test_a_text_that_fits_no_context_is_refused_before_it_is_tokenised(start_engine, monkeypatch):
    engine = await start_engine(context_length=64)
    client = await engine.client()

    def tokenise(*_):
        raise AssertionError("it was tokenised")

    for name in ("encode", "encode_chat"):
        monkeypatch.setattr(EchoTokenizer, name, tokenise)
    text = "x" * (64 * LONGEST_TOKEN + 1)
    turns = (ChatMessage("user", text[:5000]), ChatMessage("assistant", text[5000:]))
    numbers = {"characters": len(text), "context_length": 64}
    for prompt in ({"prompt": text}, {"messages": turns}):
        with pytest.raises(EngineRefused) as refused:
            await Tenant("acme", client).answer(**prompt)
        assert (refused.value.error.code, refused.value.error.details) == ("context_length_exceeded", numbers)


async def test_a_long_prompt_is_prepared_without_holding_up_others(acme, rival):
    long = acme.start("long " * 30_000)
    assert (await rival.answer("short", max_tokens=3)).finished.reason == "length"
    with pytest.raises(EngineRefused, match="context_length_exceeded"):
        await read(long)


async def test_everything_waits_its_turn_when_the_pool_is_full(start_engine):
    engine = await start_engine(pool_tokens=256)
    tenants = [Tenant(name, await engine.client()) for name in ("acme", "rival")]
    wanted = [(tenant, f"prompt {number} " * 5) for tenant in tenants for number in range(6)]
    alone = [await tenant.answer(prompt, max_tokens=60, ignore_eos=True) for tenant, prompt in wanted]
    together = await asyncio.gather(
        *(tenant.answer(prompt, max_tokens=60, ignore_eos=True) for tenant, prompt in wanted)
    )
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]
