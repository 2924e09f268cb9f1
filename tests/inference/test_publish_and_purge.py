"""Published prefixes and purges over the wire: what everybody finds, and what nobody finds any more."""

from __future__ import annotations

import asyncio

from pagoda_inference.client import SyncEngineClient
from pagoda_inference.protocol import Account, ChatMessage, Prefix, Publish, Purge, SetAccounts

SYSTEM = ChatMessage(
    "system", "You are the assistant of a library. Answer briefly, name a book, and be kind to everybody."
)
LIBRARY = Prefix("library", messages=(SYSTEM,))
QUESTION = (SYSTEM, ChatMessage("user", "What shall I read?"))
PROMPT = "Explain paged attention to a lawyer, with three examples from daily life, please."


async def cached(tenant, **options):
    answer = await tenant.answer(max_tokens=2, **options)
    return answer.finished.usage.cached_tokens


async def adds_up(engine):
    report = await engine.report()
    assert report.free + sum(each.active + each.cached for each in report.accounts) == report.total
    return {each.id: each for each in report.accounts}


async def test_everybody_finds_what_is_published_and_it_is_held_once(engine, acme, rival):
    answer = await acme.client.publish(Publish(1, (LIBRARY,)))
    [library] = answer.prefixes
    assert (answer.version, answer.applied, library.error) == (1, True, None)
    assert library.blocks == library.tokens // 16 > 0
    assert await cached(acme, messages=QUESTION) == await cached(rival, messages=QUESTION) == library.blocks * 16
    public = (await adds_up(engine))["public"]
    assert (public.active + public.cached, public.reservation, public.limit) == (library.blocks,) * 3
    assert (await engine.report()).published_version == 1


async def test_nothing_behind_it_is_shared(acme, rival):
    [library] = (await acme.client.publish(Publish(1, (LIBRARY,)))).prefixes
    long = (SYSTEM, ChatMessage("user", PROMPT))
    assert await cached(acme, messages=long) == library.blocks * 16
    assert await cached(acme, messages=long) > library.blocks * 16
    assert await cached(rival, messages=long) == library.blocks * 16


async def test_a_version_is_applied_once_and_the_list_in_force_is_told(acme, rival):
    await acme.client.publish(Publish(5, (LIBRARY,)))
    for version in (5, 4):
        answer = await acme.client.publish(Publish(version, ()))
        assert (answer.version, answer.applied, [each.id for each in answer.prefixes]) == (5, False, ["library"])
    assert (await acme.client.publish(Publish(6, ()))).prefixes == ()
    assert await cached(rival, messages=QUESTION) == 0


async def test_what_reservations_leave_no_room_for_is_refused_alone_with_the_numbers(engine, acme, rival):
    await acme.client.set_accounts(SetAccounts(1, (Account("acme", reservation=250), Account("rival"))))
    long = Prefix("long", messages=(ChatMessage("system", "tower " * 100),))
    answer = await acme.client.publish(Publish(1, (long, LIBRARY)))
    told = {each.id: each for each in answer.prefixes}
    assert told["long"].error.details["limit_blocks"] == 6
    assert told["long"].blocks == 0
    assert told["library"].error is None or told["library"].error.details["limit_blocks"] == 6
    await adds_up(engine)


async def test_a_purged_conversation_is_found_no_more_and_the_rivals_stays(engine, acme, rival):
    for tenant in (acme, rival):
        await cached(tenant, prompt=PROMPT, lineage="conversation")
    purged = await acme.client.purge(Purge("acme", ("conversation", "unknown")))
    assert purged.blocks > 0
    assert (await acme.client.purge(Purge("acme", ("conversation",)))).blocks == 0
    assert await cached(acme, prompt=PROMPT) == 0
    assert await cached(rival, prompt=PROMPT) == (len(PROMPT) - 1) // 16 * 16
    await adds_up(engine)


async def test_what_another_conversation_uses_too_stays(acme, rival):
    for lineage in ("first", "second"):
        await cached(acme, prompt=PROMPT, lineage=lineage)
    await acme.client.purge(Purge("acme", ("first",)))
    assert await cached(acme, prompt=PROMPT, lineage="second") == (len(PROMPT) - 1) // 16 * 16
    await acme.client.purge(Purge("acme", ("second",)))
    assert await cached(acme, prompt=PROMPT) == 0


async def test_an_unknown_accounts_conversations_are_nothing_to_purge(acme, rival):
    assert (await acme.client.purge(Purge("nobody", ("conversation",)))).blocks == 0


async def test_the_blocking_client_does_the_same(engine, acme, rival):
    await cached(acme, prompt=PROMPT, lineage="conversation")

    def both():
        with SyncEngineClient(engine.address) as client:
            published = client.publish(Publish(1, (LIBRARY,)))
            return published.applied, client.purge(Purge("acme", ("conversation",))).blocks

    applied, blocks = await asyncio.to_thread(both)
    assert applied
    assert blocks > 0
