"""Whatever is asked while a step is in flight: answers and books are those of an engine that waits for each step."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from pagoda_inference.protocol import Account, Prefix, Publish, Purge, Sampling, SetAccounts
from tests.kv.engine_events import OFTEN
from tests.kv.engine_in_flight import InFlightWorld
from tests.kv.engine_strategies import TEXTS, classes, lineages, prompts, samplings, tenants
from tests.kv.engine_world import TENANTS
from tests.kv.happened import check_all_happened
from tests.kv.test_engine_stateful import SETTINGS, WholeEngine, quiet

__all__ = ["quiet"]

FIRED: Counter[str] = Counter()


class EngineBesideItsModel(WholeEngine):
    """All that the other machine does, and the same while a step is in flight."""

    World = InFlightWorld
    fired = FIRED
    world: InFlightWorld

    def somebody_runs(self) -> None:
        """So that there is a step to be in flight."""
        if not self.world.scheduler.has_work:
            self.restore_quotas()
            self.world.add(TENANTS[0], TEXTS[0][:2], Sampling(max_tokens=8), lineage="talk")

    @rule(tenant=tenants, prompt=prompts, sampling=samplings, kind=classes, lineage=lineages)
    def add_in_flight(self, tenant: str, prompt: list[int], sampling: Sampling, kind: str, lineage: str) -> None:
        self.somebody_runs()
        world = self.world
        asked = world.in_flight(lambda: world.submit(tenant, prompt, sampling, request_class=kind, lineage=lineage))
        self.fired["added in flight"] += asked

    @rule(data=st.data(), back=st.booleans())
    def cancel_in_flight(self, data: st.DataObject, back: bool) -> None:
        """And come back under the same id, before the engine has even heard of the cancel."""
        self.somebody_runs()
        if not self.world.live:
            return
        world, job = self.world, data.draw(st.sampled_from(self.world.live))
        command = job.command

        def ask() -> None:
            world.engine.cancel((command.account, command.id))
            if back:
                world.submit(command.account, job.prompt, command.sampling, id=command.id)

        if world.in_flight(ask):
            assert not job.live
            self.fired["cancelled in flight"] += 1
            if back:
                again = world.jobs[-1]
                assert again.refused is None or again.refused.code != "invalid_request", "the cancel came too late"

    @precondition(lambda self: self.world.cached_lineages)
    @rule(data=st.data())
    def purge_in_flight(self, data: st.DataObject) -> None:
        """Of something that is cached, perhaps by who runs."""
        world = self.world
        owner, lineage = data.draw(st.sampled_from(world.cached_lineages))
        self.somebody_runs()
        futures: list[Future] = []
        if world.in_flight(lambda: futures.append(world.engine.purge(Purge(owner, (lineage,))))):
            if not futures[0].done():
                world.run_copies()
            purged = futures[0].result(timeout=0)
            self.fired["purged in flight"] += bool(purged.blocks or purged.stored)

    @rule(
        shares=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), min_size=3, max_size=3),
        gone=st.sampled_from([None, None, *TENANTS]),
    )
    def edit_quotas_in_flight(self, shares: list[tuple[int, int]], gone: str | None) -> None:
        self.somebody_runs()
        world, futures = self.world, []
        accounts = [
            Account(tenant, reservation, reservation + slack)
            for tenant, (reservation, slack) in zip(TENANTS, shares, strict=True)
            if tenant != gone
        ]
        message = SetAccounts(next(world._versions), tuple(accounts))
        if world.in_flight(lambda: futures.append(world.engine.set_accounts(message))):
            self.fired["quotas in flight"] += futures[0].result(timeout=0).applied
        self.restore_quotas()

    @rule(length=st.integers(1, 3), text=st.integers(0, 2))
    def publish_in_flight(self, length: int, text: int) -> None:
        self.somebody_runs()
        world = self.world
        prefix = Prefix("text", token_ids=tuple(TEXTS[text][: length * world.shape.block_size]))
        message = Publish(next(world._versions), (prefix,))
        asked = world.in_flight(lambda: world._publishing.append(world.engine.publish(message)))
        self.fired["published in flight"] += asked

    @rule()
    def report_in_flight(self) -> None:
        """What is told of the pool adds up at any time."""
        self.somebody_runs()
        world, futures = self.world, []
        if world.in_flight(lambda: futures.append(world.engine.report())):
            report = futures[0].result(timeout=0)
            assert report.free + sum(each.active + each.cached for each in report.accounts) == report.total

    @precondition(lambda self: self.world.copier.in_flight)
    @rule(count=st.sampled_from([1, 2, None]))
    def copies_end_in_flight(self, count: int | None) -> None:
        self.somebody_runs()
        self.fired["copies ended in flight"] += self.world.in_flight(lambda: self.world.copier.release(count))

    @rule()
    def a_step_cannot_be_launched(self) -> None:
        self.world.backend.fault = "launch"
        self.world.step(2)

    @precondition(lambda self: self.folder)
    @rule(often=st.integers(0, 2))
    def stop_in_flight(self, often: int) -> None:
        self.somebody_runs()
        if not often and self.world.in_flight(self.world.engine.stop):
            assert not self.world.live
            self.fired["stopped in flight"] += 1
            self.world.restart()


TestEngineBesideItsModel = EngineBesideItsModel.TestCase
TestEngineBesideItsModel.settings = SETTINGS


@pytest.mark.timeout(3600)
def test_everything_happened_in_flight() -> None:
    """Runs after the machine: what never fired was not tested."""
    wanted = ["added in flight", "plan kept"]
    if SETTINGS.max_examples >= 400:
        wanted += [*OFTEN, "cancelled in flight", "purged in flight", "quotas in flight", "published in flight"]
        wanted += ["copies ended in flight", "stopped in flight"]
        wanted += ["taken a step early", "plan forgotten"]
    if SETTINGS.max_examples >= 2000:
        wanted += ["ended while the next step was planned"]
    check_all_happened(EngineBesideItsModel, SETTINGS, FIRED, wanted)
