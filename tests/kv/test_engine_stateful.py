"""Anything may be asked of a whole engine in any order: every answer is what the model says alone, and nothing is lost.

The real loop, scheduler, pool and tiers; copies between tiers end when a rule lets them, in time, late or never well.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagoda_inference.protocol import Account, Sampling
from tests.kv.engine_events import OFTEN, RARE, SELDOM
from tests.kv.engine_listener import Job
from tests.kv.engine_reference import Reference
from tests.kv.engine_shape import Shape
from tests.kv.engine_strategies import (
    LETTERS,
    LONGEST,
    TEXTS,
    classes,
    lineages,
    prompts,
    samplings,
    shapes,
    tails,
    tenants,
)
from tests.kv.engine_world import TENANTS, EngineWorld
from tests.kv.happened import check_all_happened

FIRED: Counter[str] = Counter()
"""How often each thing happened over all examples: what never happened was not tested."""

REFERENCE = Reference()


class WholeEngine(RuleBasedStateMachine):
    """Three tenants on tiny pools: collisions, evictions, preemptions, swaps and demotions everywhere."""

    World = EngineWorld
    fired = FIRED
    world: EngineWorld
    folder: Path | None = None

    @initialize(shape=shapes)
    def start(self, shape: Shape) -> None:
        if shape.disk and shape.host:
            self.folder = Path(tempfile.mkdtemp(prefix="pagoda-engine-"))
        self.world = self.World(shape, REFERENCE, self.fired, self.folder)

    def any_job(self, data: st.DataObject) -> Job:
        return data.draw(st.sampled_from(self.world.jobs))

    # --- requests -----------------------------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        prompt=prompts,
        sampling=samplings,
        kind=classes,
        lineage=lineages,
        user=st.sampled_from(["", "", "ann"]),
    )
    def add(self, tenant: str, prompt: list[int], sampling: Sampling, kind: str, lineage: str, user: str) -> None:
        self.world.add(tenant, prompt, sampling, request_class=kind, lineage=lineage, user=user)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), tail=tails, sampling=samplings)
    def next_turn(self, data: st.DataObject, tail: list[int], sampling: Sampling) -> None:
        """A conversation goes on: the prompt and its answer are its prefix."""
        job = self.any_job(data)
        if not job.live and len(job.tokens) < LONGEST:
            self.come_back(job, [*job.tokens, *tail], sampling)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), sampling=samplings)
    def regenerate(self, data: st.DataObject, sampling: Sampling) -> None:
        job = self.any_job(data)
        self.come_back(job, job.prompt, sampling)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), tail=tails, sampling=samplings)
    def branch(self, data: st.DataObject, tail: list[int], sampling: Sampling) -> None:
        """An earlier message is edited."""
        job = self.any_job(data)
        kept = data.draw(st.integers(0, len(job.prompt)))
        self.come_back(job, [*job.prompt[:kept], *tail], sampling)

    @precondition(lambda self: self.world.shape.host)
    @rule(data=st.data(), tenant=tenants, sampling=samplings)
    def load(self, data: st.DataObject, tenant: str, sampling: Sampling) -> None:
        """A conversation that only a tier remembers goes on, and waits for its blocks."""
        world = self.world
        world.run_until_idle()
        job = next((job for job in world.jobs if not job.live and world.is_below(job)), None)
        if job is None:
            self.restore_quotas()
            size = world.shape.block_size * max(1, min(4, world.shape.blocks // 3))
            job = world.add(tenant, TEXTS[0][: size + 1], Sampling(max_tokens=3), lineage="talk")
            world.step(9, copies=9)
            for seed in range(4):
                if job.live or world.is_below(job):
                    break
                self.fill(data.draw(tenants), seed, 1)
        if not job.live:
            again = self.come_back(job, job.tokens, sampling)
            world.step()
            self.meanwhile(data, again)

    def meanwhile(self, data: st.DataObject, job: Job) -> None:
        """Something happens to a request whose blocks are being copied."""
        what = data.draw(st.sampled_from(["abort", "fail", "purge", "delete", "nothing"]))
        if what == "abort" and job.live:
            self.world.abort(job)
        elif what == "purge":
            self.world.purge(job.command.account, job.command.lineage)
        elif what == "delete":
            self.delete(job.command.account, True)
        elif what == "fail":
            self.world.release(data.draw(st.sampled_from([1, None])), failing=True)
            self.world.step(2)

    def come_back(self, job: Job, prompt: list[int], sampling: Sampling) -> Job:
        command = job.command
        user = command.scope.rpartition(":")[2] if command.scope.startswith("user:") else ""
        return self.world.add(command.account, prompt[:LONGEST], sampling, lineage=command.lineage, user=user)

    @precondition(lambda self: self.world.live)
    @rule(data=st.data(), prompt=prompts, sampling=samplings)
    def same_id(self, data: st.DataObject, prompt: list[int], sampling: Sampling) -> None:
        job = data.draw(st.sampled_from(self.world.live))
        again = self.world.add(job.command.account, prompt, sampling, id=job.command.id)
        assert again.refused is not None
        assert again.refused.code == "invalid_request"

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), ended=st.sampled_from([False, False, True]))
    def abort(self, data: st.DataObject, ended: bool) -> None:
        jobs = self.world.jobs if ended else self.world.live
        if jobs:
            self.world.abort(data.draw(st.sampled_from(jobs)))

    @rule(tenant=tenants, seed=st.integers(0, 9), tokens=st.sampled_from([1, 2, 30]))
    def fill(self, tenant: str, seed: int, tokens: int) -> None:
        """One tenant's work fills the pool."""
        shape, text = self.world.shape, random.Random(seed)
        length = max(1, min(4, shape.blocks - 1) * shape.block_size)
        for _ in range(3):
            prompt = [text.choice(LETTERS) for _ in range(length)]
            self.world.add(tenant, prompt, Sampling(max_tokens=tokens), request_class="api")
            self.world.step(3, copies=1)

    @rule(data=st.data(), steps=st.integers(17, 30), count=st.integers(2, 4), answers=st.integers(1, 2))
    def contend(self, data: st.DataObject, steps: int, count: int, answers: int) -> None:
        """One tenant has everything for longer than its quantum; then another one comes."""
        rich, poor, _ = data.draw(st.permutations(TENANTS))
        self.world.set_accounts([Account(tenant) for tenant in TENANTS])
        blocks, size = self.world.shape.blocks, self.world.shape.block_size
        kind = data.draw(classes)
        for index in range(count):
            prompt = TEXTS[index % 3][: max(2, (blocks * size - 20 * count) // count)]
            sampling = Sampling(max_tokens=60, ignore_eos=True, n=answers)
            self.world.add(rich, prompt[:LONGEST], sampling, request_class=kind)
        self.world.step(steps)
        self.world.add(poor, TEXTS[0][: size * data.draw(st.integers(1, 3))], data.draw(samplings))
        self.world.step(2)
        preempted = [job for job in self.world.live if job.request.preemptions]
        if preempted:
            self.meanwhile(data, preempted[0])

    @rule(data=st.data(), steps=st.integers(17, 22), tokens=st.sampled_from([1, 20]))
    def contend_for_slots(self, data: st.DataObject, steps: int, tokens: int) -> None:
        """One tenant has all slots; then another one comes, and blocks are not what it lacks."""
        rich, poor, _ = data.draw(st.permutations(TENANTS))
        self.world.set_accounts([Account(tenant) for tenant in TENANTS])
        for seed in range(self.world.shape.slots):
            self.world.add(rich, TEXTS[seed % 3][:2], Sampling(max_tokens=60, ignore_eos=True))
        self.world.step(steps)
        self.world.add(poor, TEXTS[0][:2], Sampling(max_tokens=tokens))
        self.world.step(2)

    # --- time ---------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 25), copies=st.sampled_from([0, 0, 1, 3]))
    def step(self, count: int, copies: int) -> None:
        self.world.step(count, copies=copies)

    @rule(fault=st.sampled_from(["step", "chunk", "answer", "copy"]))
    def model_fails(self, fault: str) -> None:
        self.world.backend.fault = fault
        self.world.step(2)

    @precondition(lambda self: self.world.copier.in_flight)
    @rule(count=st.sampled_from([1, 2, None]), failing=st.sampled_from([False, False, True]))
    def copies_end(self, count: int | None, failing: bool) -> None:
        self.world.release(count, failing=failing)

    @rule(often=st.integers(0, 3))
    def idle(self, often: int) -> None:
        if not often:
            self.world.run_until_idle()

    # --- what the platform asks ---------------------------------------------------------------------------------------

    @rule(
        quotas=st.lists(
            st.tuples(st.floats(0, 1), st.floats(0, 1.2), st.sampled_from([0.5, 1.0, 3.0])), min_size=3, max_size=3
        ),
        scale=st.sampled_from([0.3, 0.3, 0.3, 1.5]),
        tiers=st.sampled_from([None, None, 0, 2, 5]),
        made_for=st.sampled_from([1, 1, 3]),
    )
    def edit_quotas(
        self, quotas: list[tuple[float, float, float]], scale: float, tiers: int | None, made_for: int
    ) -> None:
        """Mostly valid: reservations that fit together, limits from just above the reservation to above the pool."""
        total = self.world.shape.blocks
        size = None if tiers is None else tiers * self.world.backend.bytes_per_block
        accounts = []
        for tenant, (share, slack, weight) in zip(TENANTS, quotas, strict=True):
            reservation = int(share * scale * total)
            limit = None if slack > 1 else max(reservation, int(slack * total))
            accounts.append(Account(tenant, reservation, limit, weight, size, size))
        self.world.set_accounts(accounts, made_for * total)

    @rule()
    def restore_quotas(self) -> None:
        """Everybody is back, and has no quota."""
        self.world.set_accounts([Account(tenant) for tenant in TENANTS])

    @rule(tenant=tenants, back=st.booleans())
    def delete(self, tenant: str, back: bool) -> None:
        """In the middle of what it does, and of its copies."""
        others = [Account(other) for other in TENANTS if other != tenant]
        self.world.set_accounts(others)
        if back:
            self.world.set_accounts([*others, Account(tenant)])

    @rule(sizes=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()), max_size=3))
    def publish(self, sizes: list[tuple[int, int, bool]]) -> None:
        size = self.world.shape.block_size
        self.world.publish(
            {f"text {text}": tuple(TEXTS[text][: length * size if whole else length]) for text, length, whole in sizes}
        )

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), live=st.booleans())
    def purge(self, data: st.DataObject, live: bool) -> None:
        """A conversation is deleted: one that runs, or one that has something in the cache."""
        if live:
            names = [(job.command.account, job.command.lineage) for job in self.world.live]
        else:
            names = self.world.cached_lineages
        if names:
            self.world.purge(*data.draw(st.sampled_from(names)))

    @rule()
    def report(self) -> None:
        report = self.world.report()
        assert report.free + sum(each.active + each.cached for each in report.accounts) == report.total

    @precondition(lambda self: self.folder)
    @rule(often=st.integers(0, 2), after_a_talk=st.booleans())
    def restart(self, often: int, after_a_talk: bool) -> None:
        """The disk tier brings back what it kept."""
        if often:
            return
        if after_a_talk:
            self.restore_quotas()
            self.world.run_until_idle()
            self.world.add(TENANTS[0], TEXTS[0][: 2 * self.world.shape.block_size], Sampling(max_tokens=3))
            self.world.run_until_idle()
        self.world.restart()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.world.close()
        finally:
            if self.folder is not None:
                self.world.tiers.close()
                shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Failures are injected all the time."""
    logger = logging.getLogger("pagoda_inference")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


SETTINGS = settings(
    max_examples=int(os.environ.get("PAGODA_TEST_EXAMPLES_ENGINE", "60")),
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

TestWholeEngine = WholeEngine.TestCase
TestWholeEngine.settings = SETTINGS


@pytest.mark.timeout(3600)
def test_everything_happened() -> None:
    """Runs after the machine: what never fired was not tested."""
    examples = SETTINGS.max_examples
    wanted = (OFTEN if examples >= 60 else []) + (SELDOM if examples >= 400 else [])
    wanted += RARE if examples >= 2000 else []
    check_all_happened(WholeEngine, SETTINGS, FIRED, wanted)
