"""What operators publish is on every engine right after the commit, and stays there."""

from __future__ import annotations

import asyncio
import html

import pytest
from channels.db import database_sync_to_async
from django.db import transaction
from engine_at_hand import new_address, serving

from pagoda.assistants import publishing
from pagoda.assistants.models import Assistant, PrefixVersion, Publication, PublishedPrefix
from pagoda.engines import connections, lifespan, reports
from pagoda.tenants.models import AuditEntry
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.protocol import ChatMessage, Published
from pagoda_inference.protocol import PublishedPrefix as InEngine
from tests.platform.assistants.conftest import TEXT

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/assistants/publishedprefix/"


def common_blocks(text):
    """Whole blocks before the question's first character."""
    system = ChatMessage("system", text)
    one, other = (EchoTokenizer().encode_chat([system, ChatMessage("user", probe)]) for probe in "xy")
    return next(index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b) // 16


@pytest.fixture
async def engine_options():
    return {"pool_tokens": 1024, "context_length": 1024}


@pytest.fixture
async def desk(async_client, operator):
    await async_client.aforce_login(operator)
    return async_client


async def rows(queryset):
    return await database_sync_to_async(list)(queryset)


async def until(condition, within_s=60):
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110  (another task writes it to the database)
            await asyncio.sleep(0.02)


async def test_saving_publishes_and_keeps_what_the_engine_says(engine, in_engine, make_prefix, rival):
    prefix = await make_prefix()
    held = (await in_engine())[str(prefix.pk)]
    assert held.blocks == common_blocks(TEXT)
    [publication] = await rows(Publication.objects.all())
    assert (publication.engine, publication.tokens, publication.blocks) == (engine, held.tokens, held.blocks)


async def test_a_changed_text_replaces_the_old_one_and_a_withdrawn_one_is_gone(engine, in_engine, make_prefix):
    prefix, other = await make_prefix(), await make_prefix("Poet", "You write poems about towers and rivers, in rhyme.")
    prefix.text = "You are the librarian of a large town."
    await database_sync_to_async(prefix.save)()
    assert (await in_engine())[str(prefix.pk)].blocks == common_blocks(prefix.text)
    prefix.active = False
    await database_sync_to_async(prefix.save)()
    assert set(await in_engine()) == {str(other.pk)}
    await database_sync_to_async(other.delete)()
    assert await in_engine() == {}
    assert await rows(Publication.objects.all()) == []


async def test_what_is_rolled_back_is_not_published(engine, in_engine, rival):
    @database_sync_to_async
    def attempt():
        with transaction.atomic():
            PublishedPrefix.objects.create(name="Librarian", text=TEXT)
            transaction.set_rollback(True)

    await attempt()
    assert await in_engine() == {}


async def test_an_operator_publishes_in_the_admin_and_it_is_audited(desk, operator, engine, in_engine):
    page = await desk.post(f"{LIST}add/", {"name": "Librarian", "text": TEXT, "active": "on"}, follow=True)
    assert "Every engine has the published prefixes." in html.unescape(page.content.decode())
    [prefix] = await rows(PublishedPrefix.objects.select_related("created_by"))
    assert prefix.created_by == operator
    [entry] = await rows(AuditEntry.across_tenants.select_related("who").filter(what="prefix.created"))
    assert (entry.who, entry.details["name"]) == (operator, "Librarian")
    assert TEXT not in str(entry.details)
    held = (await in_engine())[str(prefix.pk)]
    page = html.unescape((await desk.get(f"{LIST}{prefix.pk}/change/")).content.decode())
    assert f"{engine}: {held.tokens} tokens, {held.blocks} blocks held" in page
    assert f">{held.blocks}<" in (await desk.get(LIST)).content.decode()


async def test_what_does_not_fit_is_refused_with_the_numbers_on_the_page(desk, engine):
    page = await desk.post(f"{LIST}add/", {"name": "Long", "text": "tower " * 80, "active": "on"}, follow=True)
    page = html.unescape(page.content.decode())
    [publication] = await rows(Publication.objects.all())
    if publication.error:  # as much as the pool may publish is the engine's to say
        assert publication.error in page
        assert "refused" in (await desk.get(LIST)).content.decode()


async def test_a_text_that_leaves_no_room_to_talk_is_not_stored(desk, engine):
    page = await desk.post(f"{LIST}add/", {"name": "Long", "text": "tower " * 200, "active": "on"})
    assert "at most 512 of the context's 1,024 leave room to talk" in html.unescape(page.content.decode())
    assert await rows(PublishedPrefix.objects.all()) == []


async def test_what_an_assistant_uses_cannot_be_deleted(desk, engine, make_prefix, acme):
    prefix = await make_prefix()
    await database_sync_to_async(Assistant.across_tenants.create)(tenant=acme.tenant, prefix=prefix)
    await desk.post(f"{LIST}{prefix.pk}/delete/", {"post": "yes"})
    assert await rows(PublishedPrefix.objects.all()) == [prefix]


async def test_an_unreachable_engine_is_named(desk, settings):
    page = await desk.post(f"{LIST}add/", {"name": "Librarian", "text": TEXT, "active": "on"}, follow=True)
    assert f"The engine at {settings.PAGODA_ENGINES[0]} did not answer" in html.unescape(page.content.decode())


@pytest.mark.parametrize("path", [LIST, "/admin/assistants/assistant/"])
async def test_only_operators_get_in(async_client, acme, path):
    for person in (acme.admin, acme.member):
        await async_client.aforce_login(person)
        assert (await async_client.get(path))["Location"].startswith("/admin/login/")


async def test_an_engine_that_is_behind_is_told_by_its_report(web, in_engine):
    @database_sync_to_async
    def without_push():
        PublishedPrefix.objects.bulk_create([PublishedPrefix(name="Librarian", text=TEXT)])
        PrefixVersion.raise_above(0)

    await without_push()

    async def told():
        return bool(await rows(Publication.objects.all()))

    await until(told)
    assert len(await in_engine()) == 1
    await until(lambda: _reported(web))


async def _reported(address):
    report = reports.latest(address)
    return report is not None and report.published_version == await database_sync_to_async(PrefixVersion.current)()


async def _is_computed():
    """Whether it is written down how many blocks a prefix has on an engine."""
    return bool([each for each in await rows(Publication.objects.all()) if each.blocks])


class StillComputing:
    """Accepts a list, and has computed it when it is asked the second time."""

    def __init__(self):
        self.answers = iter((0, 5))

    async def publish(self, message):
        blocks = next(self.answers)
        said = tuple(InEngine(each.id, 80, blocks) for each in message.prefixes)
        return Published(message.version, applied=not blocks, prefixes=said)


async def test_an_engine_that_computes_is_asked_again_until_it_is_done(acme, rival, desk, settings, monkeypatch):
    client = StillComputing()
    monkeypatch.setitem(connections._clients, settings.PAGODA_ENGINES[0], client)

    @database_sync_to_async
    def without_push():
        PublishedPrefix.objects.bulk_create([PublishedPrefix(name="Librarian", text=TEXT)])
        return PrefixVersion.raise_above(0)

    report = type("Report", (), {"published_version": await without_push(), "instance": "i"})
    shown = []
    for _ in range(3):  # by the third report there is nothing left to ask
        await publishing.follow_report(client, None, report)
        await asyncio.gather(*publishing._publishing.values())
        [publication] = await rows(Publication.objects.all())
        page = (await desk.get(LIST)).content.decode()
        shown.append((publication.blocks, "being computed" in page))
    await publishing.stop()
    assert shown == [(0, True), (5, False), (5, False)]


async def test_an_engine_that_comes_back_has_everything_again(settings, home, make_prefix, acme):
    address = new_address()
    settings.PAGODA_ENGINES = [address]
    prefix = await make_prefix()
    await lifespan.start()
    try:
        for _ in range(2):
            await database_sync_to_async(Publication.objects.all().delete)()
            async with serving(address, home):
                await until(_is_computed)
                [publication] = await rows(Publication.objects.all())
                assert (publication.prefix_id, publication.blocks) == (prefix.pk, common_blocks(TEXT))
    finally:
        await lifespan.stop()


async def test_an_engine_ahead_of_the_database_gets_the_databases_list(engine, in_engine, make_prefix):
    await make_prefix("Old", "You are what was published before the database was restored.")

    @database_sync_to_async
    def restore():
        Publication.objects.all().delete()
        PublishedPrefix.objects.all()._raw_delete("default")
        PrefixVersion.objects.update(version=5)
        return PublishedPrefix.objects.create(name="New", text=TEXT)

    new = await restore()
    assert set(await in_engine()) == {str(new.pk)}
    assert publishing.last_push() == () or not publishing.last_push()[0].problem


async def test_without_published_prefixes_engines_are_not_asked(acme, settings):
    class Unused:
        async def publish(self, message):
            raise AssertionError("published without need")

    client = Unused()
    connections._clients["unused"] = client
    try:
        report = type("Report", (), {"published_version": 0, "instance": "i"})
        await publishing.follow_report(client, None, report)
        assert not publishing._publishing
    finally:
        del connections._clients["unused"]
