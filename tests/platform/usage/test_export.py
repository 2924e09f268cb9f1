"""The ledger as a file: complete, streamed, one tenant's alone, and harmless in a spreadsheet."""

import csv
import io
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from askers import key_of
from channels.db import database_sync_to_async

from pagoda.tenants.keys import create_key
from pagoda.usage import export
from pagoda.usage.models import Price, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = datetime(2031, 3, 1, 9, 30, tzinfo=UTC)
DAYS = "first=2031-03-01&last=2031-03-31"


@database_sync_to_async
def records(party, count=1, when=FIRST, **fields):
    numbers = {"model": "echo", "purpose": "api", "prompt_tokens": 10, "cached_tokens": 4, "output_tokens": 5}
    made = [
        UsageRecord(tenant=party.tenant, generation_id=uuid.uuid4(), created=when, **numbers | fields)
        for _ in range(count)
    ]
    return UsageRecord.across_tenants.bulk_create(made)


async def download(client, user, path, query=DAYS):
    await client.aforce_login(user)
    response = await client.get(f"{path}?{query}")
    if response.status_code != 200:
        return response.status_code
    assert response.streaming
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in response["Content-Disposition"]
    parts = [part.decode() async for part in response.streaming_content]
    rows = list(csv.reader(io.StringIO("".join(parts))))
    assert rows[0] == list(export.COLUMNS)
    return [dict(zip(export.COLUMNS, row, strict=True)) for row in rows[1:]]


async def test_every_record_of_the_tenant_and_none_of_another(async_client, acme, rival, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 7)
    made = await records(acme, 20) + await records(acme, 5, FIRST + timedelta(hours=1))
    await records(rival, 9)
    rows = await download(async_client, acme.admin, "/usage/export.csv")
    assert sorted(row["generation_id"] for row in rows) == sorted(str(each.generation_id) for each in made)
    assert {row["tenant"] for row in rows} == {"acme"}
    assert sum(int(row["prompt_tokens"]) + int(row["output_tokens"]) for row in rows) == 25 * 15


async def test_operators_get_all_tenants_and_nobody_else_does(async_client, acme, rival, operator):
    await records(acme)
    await records(rival)
    path = "/admin/usage/usagerecord/export.csv"
    rows = await download(async_client, operator, path)
    assert {row["tenant"] for row in rows} == {"acme", "rival"}
    one = await download(async_client, operator, path, f"{DAYS}&tenant={rival.tenant.id}")
    assert {row["tenant"] for row in one} == {"rival"}
    assert await download(async_client, acme.admin, path) == 302
    assert await download(async_client, acme.member, "/usage/export.csv") == 403


async def test_a_tenant_admin_cannot_name_another_tenant(async_client, acme, rival):
    await records(rival)
    assert await download(async_client, acme.admin, "/usage/export.csv", f"{DAYS}&tenant=rival") == []
    assert await download(async_client, acme.admin, "/usage/export.csv", f"{DAYS}&tenant={rival.tenant.id}") == []


async def test_a_key_fetches_its_own_tenants_ledger_with_the_scope_admin(async_client, acme, rival):
    await records(acme, 3)
    await records(rival, 4)

    async def fetch(text):
        response = await async_client.get(f"/usage/export.csv?{DAYS}", headers={"authorization": f"Bearer {text}"})
        if response.status_code != 200:
            return response.status_code
        lines = b"".join([part async for part in response.streaming_content]).decode().splitlines()[1:]
        return [next(csv.reader([line]))[2] for line in lines]

    make = database_sync_to_async(create_key)
    _, with_scope = await make(acme.tenant.id, "billing", created_by=None, scopes=["admin"])
    _, without = await make(acme.tenant.id, "app", created_by=None)
    assert await fetch(with_scope) == ["acme"] * 3
    assert await fetch(without) == 403
    assert await fetch("pgd_nonsense") == 401


async def test_what_looks_like_a_formula_is_text(async_client, acme, rival):
    evil = '=HYPERLINK("http://evil.example","x")'
    key = await database_sync_to_async(key_of)(acme)
    key.label = evil
    await key.asave()
    await records(acme, api_key=key, model="@SUM(1)", purpose="-1")
    (row,) = await download(async_client, acme.admin, "/usage/export.csv")
    assert (row["key_label"], row["model"], row["purpose"]) == (f"'{evil}", "'@SUM(1)", "'-1")
    assert row["key_prefix"] == f"pgd_{key.prefix}"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "＝"])
async def test_every_start_of_a_formula_is_known(start):
    assert export.harmless(f"{start}1+1") == f"'{start}1+1"
    assert export.harmless(f"a{start}") == f"a{start}"


async def test_times_are_utc_and_days_are_filtered(async_client, acme, rival, settings):
    settings.TIME_ZONE = "Asia/Seoul"
    await records(acme, when=datetime(2031, 3, 31, 23, 59, 59, tzinfo=UTC))
    await records(acme, when=datetime(2031, 4, 1, tzinfo=UTC))
    (row,) = await download(async_client, acme.admin, "/usage/export.csv")
    assert row["created_utc"] == "2031-03-31T23:59:59.000Z"
    assert await download(async_client, acme.admin, "/usage/export.csv", "first=2031-03-02&last=2031-03-01") == 422
    assert await download(async_client, acme.admin, "/usage/export.csv", "first=today") == 422
    assert await download(async_client, acme.admin, "/usage/export.csv", "last=9999-12-31") == 422


async def test_each_record_has_its_price(async_client, acme, rival):
    dollars = {"input": Decimal(1), "cached_input": Decimal("0.5"), "output": Decimal(2), "currency": "USD"}
    await Price.across_tenants.acreate(tenant=acme.tenant, effective_from=FIRST.date(), **dollars)
    await records(acme, user=acme.member)
    (row,) = await download(async_client, acme.admin, "/usage/export.csv")
    assert (row["cost"], row["currency"], row["member"]) == ("0.000018", "USD", acme.member.email)


async def test_a_program_without_a_key_is_told_so_and_a_person_is_asked_to_sign_in(async_client, acme, rival):
    program = await async_client.get(f"/usage/export.csv?{DAYS}", headers={"accept": "*/*"})
    assert program.status_code == 401
    assert "Authorization: Bearer" in program.content.decode()
    person = await async_client.get(f"/usage/export.csv?{DAYS}", headers={"accept": "text/html,*/*"})
    assert person.status_code == 302
    assert "/accounts/login/" in person.headers["location"]
