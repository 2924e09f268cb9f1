"""How much a tenant's files may take up, how long they are kept, and that its rival's are another matter."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from asking import read
from django.test import Client
from django.utils import timezone
from lines import carried_out, line, lines, results
from openai import AsyncOpenAI

from pagoda.batches import quota, retention, tasks, uploads
from pagoda.batches.models import Batch, FileQuota, StoredFile
from pagoda.tenants.models import AuditEntry
from pagoda.tenants.scoping import tenant_scope

MIB = 1 << 20
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def on_disk(home: Path) -> list[str]:
    """Names of what lies in the folder of files."""
    return sorted(path.name for path in (home / "files").rglob("*") if path.is_file())


def stored(*files: Any) -> list[str]:
    """The names under which files lie on the disk."""
    return sorted(file.id.removeprefix("file-") for file in files)


async def upload(client: AsyncOpenAI, size: int = 2, **fields: Any) -> Any:
    return await client.files.create(file=("a.jsonl", b"{}".ljust(size)), purpose="batch", **fields)


class TestQuota:
    @pytest.fixture(autouse=True)
    def of_all(self, settings: Any) -> None:
        settings.PAGODA_FILES_QUOTA_MIB = 3

    async def test_what_does_not_fit_is_refused_with_the_numbers_and_leaves_nothing(
        self, client: AsyncOpenAI, rival_client: AsyncOpenAI, home: Path
    ) -> None:
        kept = await upload(client, 2 * MIB)
        with pytest.raises(openai.BadRequestError) as refused:
            await upload(client, MIB + 1)
        assert (refused.value.code, refused.value.param) == ("file_quota_exceeded", "file")
        assert "2,097,152 of 3,145,728 bytes" in refused.value.message
        assert "more than 1,048,576 bytes does not fit" in refused.value.message
        assert [file.id async for file in client.files.list()] == [kept.id]
        fits = await upload(client, MIB)
        theirs = await upload(rival_client, 3 * MIB)
        assert on_disk(home) == stored(kept, fits, theirs)

    async def test_a_deleted_file_makes_room(self, client: AsyncOpenAI) -> None:
        first = await upload(client, 3 * MIB)
        with pytest.raises(openai.BadRequestError):
            await upload(client)
        await client.files.delete(first.id)
        await upload(client, 3 * MIB)

    async def test_uploads_side_by_side_do_not_fill_the_same_room(self, client: AsyncOpenAI, home: Path) -> None:
        outcomes = await asyncio.gather(*(upload(client, MIB) for _ in range(8)), return_exceptions=True)
        kept = [file for file in outcomes if not isinstance(file, BaseException)]
        assert len(kept) == 3
        assert {type(each) for each in outcomes if each not in kept} == {openai.BadRequestError}
        assert on_disk(home) == stored(*kept)

    @pytest.mark.parametrize(("mib", "fits"), [(1, False), (4, True), (0, True), (None, False)])
    async def test_a_tenant_may_have_a_quota_of_its_own(
        self, client: AsyncOpenAI, rival_client: AsyncOpenAI, acme: Any, mib: int | None, fits: bool
    ) -> None:
        await read(FileQuota.across_tenants.create)(tenant=acme.tenant, mib=mib)
        if fits:
            await upload(client, 4 * MIB)
        else:
            with pytest.raises(openai.BadRequestError):
                await upload(client, 4 * MIB)
        with pytest.raises(openai.BadRequestError):
            await upload(rival_client, 4 * MIB)

    async def test_the_largest_file_is_the_same_where_there_is_no_limit(
        self, client: AsyncOpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.PAGODA_FILES_QUOTA_MIB = 0
        monkeypatch.setattr(uploads, "MAX_FILE_BYTES", 2 * MIB)
        await upload(client, 2 * MIB)
        with pytest.raises(openai.APIStatusError) as error:
            await upload(client, 2 * MIB + 1)
        assert error.value.status_code == 413

    async def test_what_a_batch_writes_counts_and_is_always_written(
        self, client: AsyncOpenAI, rival_client: AsyncOpenAI, submit: Any, acme: Any
    ) -> None:
        batch = await submit([line("filler", " " * (3 * MIB - 300))])
        used = (await client.files.retrieve(batch.input_file_id)).bytes
        assert used < 3 * MIB
        batch = await carried_out(client, batch)
        assert batch.request_counts.failed == 1
        assert (await client.files.retrieve(batch.error_file_id)).bytes + used > 3 * MIB
        asked: dict[str, Any] = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        with pytest.raises(openai.BadRequestError) as refused:
            await client.batches.create(input_file_id=batch.input_file_id, **asked)
        assert refused.value.code == "file_quota_exceeded"
        theirs = await upload(rival_client)
        await rival_client.batches.create(input_file_id=theirs.id, **asked)

    async def test_a_batch_made_while_there_was_room_fails_when_there_is_none_at_its_turn(
        self, client: AsyncOpenAI, submit: Any, acme: Any
    ) -> None:
        batch = await submit(lines(2))
        await upload(client, 3 * MIB - (await client.files.retrieve(batch.input_file_id)).bytes)
        batch = await carried_out(client, batch)
        assert batch.status == "failed"
        (error,) = batch.errors.data
        assert error.code == "file_quota_exceeded"
        assert "3,145,728 of 3,145,728 bytes" in error.message


class TestRetention:
    async def test_a_file_is_kept_as_long_as_its_client_says(
        self, client: AsyncOpenAI, rival_client: AsyncOpenAI, home: Path, settings: Any
    ) -> None:
        settings.PAGODA_FILES_RETENTION_DAYS = 0
        short = await upload(client, expires_after={"anchor": "created_at", "seconds": 3600})
        long = await upload(client, expires_after={"anchor": "created_at", "seconds": 30 * 24 * 3600})
        kept = await upload(client)
        theirs = await upload(rival_client)
        assert short.expires_at - short.created_at == 3600
        assert (await client.files.retrieve(long.id)).expires_at == long.created_at + 30 * 24 * 3600
        assert (kept.expires_at, theirs.expires_at) == (None, None)
        assert await read(retention.delete_expired)(timezone.now() + 0.9 * HOUR) == 0
        assert await read(retention.delete_expired)(timezone.now() + HOUR) == 1
        with pytest.raises(openai.NotFoundError):
            await client.files.content(short.id)
        assert on_disk(home) == stored(long, kept, theirs)
        assert await read(retention.delete_expired)(timezone.now() + 31 * DAY) == 1
        assert on_disk(home) == stored(kept, theirs)

    async def test_no_file_is_kept_longer_than_the_installation_keeps_any(
        self, client: AsyncOpenAI, rival_client: AsyncOpenAI, home: Path, settings: Any
    ) -> None:
        settings.PAGODA_FILES_RETENTION_DAYS = 7
        ours, theirs = await upload(client), await upload(rival_client)
        asks_for_more = await upload(client, expires_after={"anchor": "created_at", "seconds": 30 * 24 * 3600})
        assert {file.expires_at - file.created_at for file in (ours, theirs, asks_for_more)} == {7 * 24 * 3600}
        assert await read(retention.delete_expired)(timezone.now() + 6.9 * DAY) == 0
        assert await read(retention.delete_expired)(timezone.now() + 7 * DAY) == 3
        assert on_disk(home) == []

    async def test_the_input_of_a_batch_stays_until_its_end_and_its_files_go_in_their_time(
        self, client: AsyncOpenAI, submit: Any, home: Path
    ) -> None:
        kept = {"anchor": "created_at", "seconds": 3600}
        batch = await submit([line("good"), line("bad", colour="red")], output_expires_after=kept)
        later = timezone.now() + 31 * DAY
        assert await read(retention.delete_expired)(later) == 0
        batch = await carried_out(client, batch)
        assert batch.status == "completed"
        assert [len(each) for each in await results(client, batch)] == [1, 1]
        for id in (batch.output_file_id, batch.error_file_id):
            file = await client.files.retrieve(id)
            assert file.expires_at == file.created_at + 3600
        assert await read(retention.delete_expired)(timezone.now() + 2 * HOUR) == 2
        assert [file.id async for file in client.files.list()] == [batch.input_file_id]
        assert await read(retention.delete_expired)(later) == 1
        assert on_disk(home) == []
        assert (await client.batches.retrieve(batch.id)).output_file_id == batch.output_file_id

    async def test_a_batch_that_begins_meanwhile_keeps_its_file(self, client: AsyncOpenAI, acme: Any) -> None:
        file = await upload(client)

        def begun_between_look_and_deletion() -> bool:
            with tenant_scope(acme.tenant.pk):
                row = StoredFile.objects.get()
                Batch.objects.create(
                    tenant=acme.tenant, endpoint="/v1/completions", input_file=row.pk, expires=timezone.now()
                )
                return retention.delete_unless_read(row)

        assert not await read(begun_between_look_and_deletion)()
        assert (await client.files.retrieve(file.id)).id == file.id

    async def test_the_workers_timetable_deletes_them(self, client: AsyncOpenAI, acme: Any, settings: Any) -> None:
        await upload(client)
        await read(StoredFile.across_tenants.update)(created=timezone.now() - 31 * DAY)
        timetable = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
        assert tasks.expire_files.name in timetable
        assert await read(tasks.expire_files)() == 1
        assert [file async for file in client.files.list()] == []

    @pytest.mark.parametrize(
        ("anchor", "seconds", "param"),
        [
            ("last_active_at", "3600", "expires_after.anchor"),
            (None, "3600", "expires_after.anchor"),
            ("created_at", None, "expires_after.seconds"),
            ("created_at", "3599", "expires_after.seconds"),
            ("created_at", "2592001", "expires_after.seconds"),
            ("created_at", "-3600", "expires_after.seconds"),
            ("created_at", "1e4", "expires_after.seconds"),
            ("created_at", "９９９９", "expires_after.seconds"),
        ],
    )
    async def test_what_expires_after_must_be(
        self, http: httpx.AsyncClient, home: Path, anchor: str | None, seconds: str | None, param: str
    ) -> None:
        said = {"expires_after[anchor]": anchor, "expires_after[seconds]": seconds}
        data = {"purpose": "batch"} | {name: value for name, value in said.items() if value is not None}
        response = await http.post("/files", data=data, files={"file": ("a", b"{}")})
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        assert on_disk(home) == []


def make_file(party: Any, size: int) -> None:
    with tenant_scope(party.tenant.pk):
        StoredFile.objects.create(tenant=party.tenant, purpose="batch", filename="a", bytes=size)


class TestAdmin:
    def test_operators_see_what_a_tenants_files_take_up(
        self, operator: Any, acme: Any, rival: Any, settings: Any
    ) -> None:
        settings.PAGODA_FILES_QUOTA_MIB = 8
        for size in (MIB, 3 * MIB):
            make_file(acme, size)
        make_file(rival, 5 * MIB)
        browser = Client()
        browser.force_login(operator)
        page = browser.get("/admin/tenants/tenant/").content.decode().replace("\xa0", " ")
        assert "4.0 MB" in page
        assert "5.0 MB" in page
        page = browser.get(f"/admin/tenants/tenant/{acme.tenant.pk}/change/").content.decode().replace("\xa0", " ")
        assert "4.0 MB in 2 files, of 8.0 MB (50 %)" in page
        settings.PAGODA_FILES_QUOTA_MIB = 0
        page = browser.get(f"/admin/tenants/tenant/{rival.tenant.pk}/change/").content.decode().replace("\xa0", " ")
        assert "5.0 MB in 1 files; no limit" in page

    def test_operators_give_a_tenant_its_own_quota(self, operator: Any, acme: Any, rival: Any) -> None:
        browser = Client()
        browser.force_login(operator)
        address = f"/admin/tenants/tenant/{acme.tenant.pk}/change/"
        form = browser.get(address).context["adminform"].form
        sent = {name: value for name, value in form.initial.items() if value is not None}
        for inline in browser.get(address).context["inline_admin_formsets"]:
            for each in (inline.formset.management_form, *inline.formset.forms):
                sent |= {
                    each.add_prefix(name): value
                    for name, field in each.fields.items()
                    if (value := each.get_initial_for_field(field, name)) is not None
                }
        assert browser.post(address, sent | {"file_quota-0-mib": "5"}).status_code == 302
        with tenant_scope(acme.tenant.pk):
            assert quota.space().most == 5 * MIB
        with tenant_scope(rival.tenant.pk):
            assert quota.space().most != 5 * MIB
        entry = AuditEntry.across_tenants.get(what="file_quota.changed")
        assert (entry.tenant_id, entry.who, entry.details["mib"]) == (acme.tenant.pk, operator, 5)
