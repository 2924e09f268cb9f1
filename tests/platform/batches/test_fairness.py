"""Tenants' batches beside one another, and everything else the worker does beside batches."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asking import read, until
from django.utils import timezone
from lines import jsonl, line, lines
from openai import AsyncOpenAI
from worker_process import send, whole_worker

from pagoda.batches import lease, runner
from pagoda.batches.models import Batch, Webhook, WebhookDelivery
from pagoda.generations.lease import new_owner
from pagoda.generations.models import Generation
from pagoda.tenants.scoping import tenant_scope


def waiting(party: Any, count: int, age_s: float = 0) -> list[Batch]:
    """Batches that nobody carries out yet, the oldest first."""
    now = timezone.now() - timedelta(seconds=age_s)
    with tenant_scope(party.tenant.pk):
        return Batch.objects.bulk_create(
            Batch(
                tenant=party.tenant,
                endpoint="/v1/completions",
                input_file=uuid.uuid4(),
                expires=now,
                created=now + timedelta(milliseconds=number),
                lease_expires=now,
            )
            for number in range(count)
        )


class TestWhoseBatchesAreTaken:
    def test_every_tenants_first_goes_before_anybodys_second(self, acme: Any, rival: Any) -> None:
        ours = waiting(acme, 1500, age_s=60)
        theirs = waiting(rival, 3)
        taken = [held.batch.pk for held in lease.claim(new_owner(), [])]
        assert set(taken) == {ours[0].pk, ours[1].pk, theirs[0].pk, theirs[1].pk}

    def test_a_tenant_that_comes_late_has_a_place_beside_those_who_were_there(
        self, make_party: Callable[[str], Any], acme: Any, rival: Any
    ) -> None:
        parties = [acme, *(make_party(f"tenant-{number}") for number in range(12))]
        for party in parties:
            waiting(party, 5, age_s=60)
        running = [held.batch for held in lease.claim(new_owner(), [])]
        per_tenant = Counter(batch.tenant_id for batch in running)
        assert (len(per_tenant), len(running)) == (13, lease.SECONDS_WITHIN)
        assert lease.claim(new_owner(), running) == []
        waiting(rival, 5)
        late = lease.claim(new_owner(), running)
        assert [held.batch.tenant_id for held in late] == [rival.tenant.pk]

    def test_there_are_never_more_than_so_many(
        self, acme: Any, rival: Any, make_party: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lease, "AT_ONCE", 2)
        monkeypatch.setattr(lease, "SECONDS_WITHIN", 1)
        for number, party in enumerate((acme, rival, make_party("third"))):
            waiting(party, 2, age_s=60 - number)
        taken = [held.batch for held in lease.claim(new_owner(), [])]
        assert Counter(batch.tenant_id for batch in taken) == {acme.tenant.pk: 1, rival.tenant.pk: 1}
        assert lease.claim(new_owner(), taken) == []

    def test_two_runners_never_take_the_same_one(self, acme: Any, rival: Any) -> None:
        waiting(acme, 3)
        waiting(rival, 1)
        first = {held.batch.pk for held in lease.claim(new_owner(), [])}
        second = {held.batch.pk for held in lease.claim(new_owner(), [])}
        assert (len(first), len(second)) == (3, 1)
        assert not first & second


class TestSideBySide:
    @pytest.fixture
    def step_ms(self) -> float:
        return 5

    async def test_a_short_batch_ends_long_before_a_rivals_large_ones_that_came_first(
        self, client: AsyncOpenAI, rival_client: AsyncOpenAI, submit: Any, settings: Any
    ) -> None:
        settings.PAGODA_BATCH_LINES_IN_FLIGHT = 8
        large = [await submit(lines(600, max_tokens=20, ignore_eos=True)) for _ in range(3)]
        running = asyncio.create_task(runner.run_waiting(lambda: stopping))
        stopping = False
        await until(lambda: read(Generation.across_tenants.filter(state="complete").count)())
        file = await rival_client.files.create(
            file=("x", jsonl(lines(40, max_tokens=20, ignore_eos=True))), purpose="batch"
        )
        short = await rival_client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )

        async def has_ended() -> bool:
            return (await rival_client.batches.retrieve(short.id)).status == "completed"

        await until(has_ended, within_s=300)
        done = [(await client.batches.retrieve(batch.id)).request_counts.completed for batch in large]
        stopping = True
        await running
        # The rival has one batch under way and acme two: what the engine does is shared by tenants, not by batches.
        assert 0 < sum(done) < 600, done
        assert done[2] == 0

    async def test_more_batches_than_fit_share_the_lines_in_flight(
        self,
        client: AsyncOpenAI,
        rival_client: AsyncOpenAI,
        submit: Any,
        settings: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        settings.PAGODA_BATCH_LINES_IN_FLIGHT = 8
        monkeypatch.setattr(runner, "FULL_WIDTH", 1)
        await submit(lines(12, max_tokens=200, ignore_eos=True))
        file = await rival_client.files.create(
            file=("x", jsonl(lines(12, max_tokens=200, ignore_eos=True))), purpose="batch"
        )
        await rival_client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        seen: Counter[tuple[int, int]] = Counter()

        def in_flight() -> tuple[int, int]:
            unfinished = Counter(
                Generation.across_tenants.filter(finished__isnull=True).values_list("tenant__slug", flat=True)
            )
            return unfinished["acme"], unfinished["rival"]

        running = asyncio.create_task(runner.run_waiting(lambda: False))
        while not running.done():
            seen[await read(in_flight)()] += 1
        await running
        both = [counts for counts in seen if all(counts)]
        assert (4, 4) in both
        assert max(map(sum, both)) <= 8
        assert runner.width(1) == 8


class TestTheWorker:
    @pytest.fixture
    def step_ms(self) -> float:
        return 20

    @pytest.mark.slow
    async def test_other_tasks_run_while_a_batch_does(self, client: AsyncOpenAI, submit: Any, acme: Any) -> None:
        def told_of(url: str) -> Any:
            with tenant_scope(acme.tenant.pk):
                webhook = Webhook.objects.create(tenant=acme.tenant, url=url)
                return WebhookDelivery.objects.create(
                    tenant=acme.tenant, webhook=webhook, event="batch.completed", payload="{}"
                )

        batch = await submit([line(str(number), max_tokens=500, ignore_eos=True) for number in range(512)])
        async with whole_worker():
            await until(lambda: read(Generation.across_tenants.filter(purpose="batch").count)(), within_s=60)
            delivery = await read(told_of)("http://127.0.0.1:9/")
            await send("batches.run", "batches.run", "batches.send_webhooks")
            tried = WebhookDelivery.across_tenants.filter(pk=delivery.pk, attempts=1)
            await until(lambda: read(tried.exists)(), within_s=120)
            assert (await client.batches.retrieve(batch.id)).status == "in_progress"
