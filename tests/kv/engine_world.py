"""A whole engine without its thread: the real loop, scheduler, pool and tiers over the KV-echo model.

What is asked takes effect at once, steps are taken one by one, and copies between tiers run when they are released.
Every event is compared with what the model answers alone, without a pool.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from pagoda_inference.engine import Engine, Observer
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.prefix_index import chain_digest
from pagoda_inference.kv.tiers.copier import ManualCopier
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.model.backend import Backend
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import (
    Account,
    AccountsSet,
    Generate,
    PoolReport,
    Prefix,
    Publish,
    Published,
    Purge,
    Purged,
    Sampling,
    SetAccounts,
)
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.scheduling.sequence import RequestState
from pagoda_inference.scheduling.step import Step
from pagoda_inference.scheduling.swapping import PreemptionCost
from pagoda_inference.speculation.costs import DraftCosts
from pagoda_inference.speculation.draft_model import SpeculativeBackend
from pagoda_inference.speculation.speculation import Speculation
from tests.kv.engine_checks import check_cache, check_draft_model, check_published, check_tiers, check_tiers_when_idle
from tests.kv.engine_drafters import GuessingEcho, Oracle
from tests.kv.engine_events import count_at_the_end, watch
from tests.kv.engine_listener import TOKENIZER, Job, Listener
from tests.kv.engine_reference import Reference
from tests.kv.engine_shape import Shape, SteadyPace, two_bit_digest
from tests.kv.watched_backend import WatchedBackend

SECRET = b"the same in every run, so that hashes collide in the same way"
TENANTS = ["acme", "globex", "initech"]


class EngineWorld:
    """Drives one engine. Every method leaves it in a state that was compared with the reference."""

    Backend = WatchedBackend

    def __init__(self, shape: Shape, reference: Reference, fired: Counter[str], folder: Path | None = None) -> None:
        self.shape = shape
        self.reference = reference
        self.fired = fired
        self.folder = folder
        self.jobs: list[Job] = []
        self._publishing: list[Future[Published]] = []
        self._ids = itertools.count()
        self._begin()

    def _begin(self) -> None:
        """An engine starts, on what another one may have left in the folder."""
        shape = self.shape
        self.backend = self.Backend(shape.block_size, shape.blocks)
        self.listener = Listener(self.backend, self.reference, self.fired)
        self.copier = ManualCopier()
        self.served = self._with_draft_model()
        size = self.served.bytes_per_block
        self.tiers = Tiers(
            self.served,
            host_bytes=shape.host * size,
            disk_bytes=shape.disk * size,
            folder=self.folder,
            model="echo",
            copier=self.copier,
        )
        digest = two_bit_digest if shape.collide else chain_digest
        self.pool = Pool(shape.blocks, shape.block_size, secret=SECRET, digest=digest)
        self.backend.pool = self.pool
        self.transfers = Transfers(self.pool, self.tiers)
        # Swapping pays in auto mode where a request's blocks are nearly full.
        cost = PreemptionCost(shape.mode, size, copy_bytes_per_s=46.0, prefill_tokens_per_s=1.0)
        self.scheduler = Scheduler(
            self.pool,
            token_budget=shape.budget,
            max_running=shape.slots,
            max_waiting_per_account=shape.waiting,
            transfers=self.transfers,
            cost=cost,
        )
        self.speculation = self._speculation()
        self.engine = Engine(
            self.served,
            self.scheduler,
            instance="test",
            deliver=self.listener.hear,
            observer=Observer(step=self._count_drafts),
            speculation=self.speculation,
            debug=True,
        )
        self.engine.pace = SteadyPace(shape.limits)  # type: ignore[assignment]
        self._versions = itertools.count(1)
        self._checked = False
        watch(self)

    def _with_draft_model(self) -> Backend:
        if self.shape.drafter != "model":
            return self.backend
        size, context = self.shape.block_size, self.backend.context_length
        self.draft = GuessingEcho(block_size=size, pool_tokens=self.shape.blocks * size, context_length=context)
        return SpeculativeBackend(self.backend, self.draft)

    def _speculation(self) -> Speculation | None:
        if not self.shape.drafter:
            return None
        return Speculation(
            self.served if isinstance(self.served, SpeculativeBackend) else Oracle(self.reference),
            DraftCosts(),
            most=self.shape.drafts,
            token_budget=self.shape.budget,
            limits=lambda: self.shape.limits,
            may_decode=self.scheduler.may_decode,
        )

    def _count_drafts(self, step: Step, seconds: float) -> None:
        assert sum(chunk.count for chunk in step.chunks) + step.drafted <= self.shape.budget or not step.drafted
        self.fired["draft right"] += step.accepted
        self.fired["draft wrong"] += step.drafted - step.accepted

    @property
    def live(self) -> list[Job]:
        return [job for job in self.jobs if job.live]

    def is_below(self, job: Job) -> bool:
        """Whether a tier has part of the conversation that the pool has not."""
        command = job.command
        if job.refused or self.pool.accounts.find(command.account) is None:
            return False
        run = self.pool.match(self.pool.chain(command.account, command.scope), job.tokens)
        return any(entry.block is None for entry in run)

    @property
    def cached_lineages(self) -> list[tuple[str, str]]:
        """(tenant, lineage) of whatever can be found."""
        lineages = self.pool.index.lineages
        return [(tenant, lineage) for tenant in TENANTS for lineage in sorted(lineages.of(tenant))]

    # --- what is asked ------------------------------------------------------------------------------------------------

    def add(
        self,
        tenant: str,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        request_class: str = "interactive",
        lineage: str = "",
        user: str = "",
        id: str | None = None,
    ) -> Job:
        job = self.submit(tenant, prompt, sampling, request_class=request_class, lineage=lineage, user=user, id=id)
        self._between_steps()
        return job

    def submit(
        self,
        tenant: str,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        request_class: str = "interactive",
        lineage: str = "",
        user: str = "",
        id: str | None = None,
    ) -> Job:
        """As ``add``, at any time: the engine hears of it when it listens next."""
        command = Generate(
            id=id or str(next(self._ids)),
            account=tenant,
            scope=f"user:{tenant}:{user}" if user else f"tenant:{tenant}",
            prompt_token_ids=tuple(prompt),
            sampling=sampling,
            lineage=lineage,
            request_class=request_class,  # type: ignore[arg-type]
        )
        log = GenerationLog((tenant, command.id), Ledger())
        generation = prepare(
            command,
            log,
            TOKENIZER,
            context_length=self.backend.context_length,
            vocabulary_size=self.backend.vocabulary_size,
        )
        job = Job(command, generation)
        self.jobs.append(job)
        self.listener.listen(log, job)
        self.engine.submit(generation)
        return job

    def abort(self, job: Job) -> None:
        """Cancel, in any state, ended ones too; and again."""
        state = job.request.state
        if job.live:
            self.fired[f"aborted {state.value}"] += 1
            self.fired["aborted while loading"] += job.request.loading
            self.fired["aborted while leaving"] += job.request.swap is not None and job.request.swap.stowed is None
            self.fired["aborted while swapped"] += job.request.swap is not None and job.request.swap.stowed is not None
        for _ in range(2):
            self.engine.cancel((job.command.account, job.command.id))
            self._between_steps()
        assert not job.live
        if job.refused:
            return
        assert self.scheduler.abort(job.request) == 0
        assert self.scheduler.finish(job.request) == 0

    def set_accounts(self, accounts: Sequence[Account], pool_blocks: int | None = None) -> AccountsSet:
        message = SetAccounts(next(self._versions), tuple(accounts), pool_blocks)
        future = self.engine.set_accounts(message)
        self._between_steps()
        answer = future.result(timeout=0)
        named = {account.id for account in accounts}
        if answer.applied:
            self.fired["tenant deleted"] += any(tenant not in named for tenant in TENANTS)
            self.fired["deleted with live work"] += any(
                job.finished is not None
                and job.finished.error is not None
                and job.finished.error.code == "unknown_account"
                for job in self.jobs[-3:]
            )
            self.fired["reservations scaled"] += answer.scaled < 1
            again = self.engine.set_accounts(message)
            self._between_steps()
            assert not again.result(timeout=0).applied, "an old version was applied"
        else:
            self.fired["quotas refused"] += 1
        return answer

    def publish(self, prefixes: dict[str, tuple[int, ...]]) -> None:
        before = {tuple(each.tokens) for each in self.scheduler.publications}
        message = Publish(next(self._versions), tuple(Prefix(id, token_ids=each) for id, each in prefixes.items()))
        self._publishing.append(self.engine.publish(message))
        self._between_steps()
        after = {tuple(each.tokens) for each in self.scheduler.publications}
        self.fired["withdrawn"] += bool(before - after)
        self.fired["publish kept"] += bool(before & after)

    def purge(self, tenant: str, lineage: str) -> Purged:
        busy = lineage and any(
            job.live and job.command.lineage == lineage and job.command.account == tenant for job in self.jobs
        )
        future = self.engine.purge(Purge(tenant, (lineage,)))
        self._between_steps()
        if not future.done():  # told when the copies are erased, too
            self.run_copies()
        purged = future.result(timeout=0)
        self.fired["purge hit"] += purged.blocks > 0
        self.fired["purge hit a tier"] += purged.stored > 0
        self.fired["purge while it runs"] += bool(busy)
        again = self.engine.purge(Purge(tenant, (lineage,)))
        self._between_steps()
        if not again.done():
            self.run_copies()
        assert again.result(timeout=0) == Purged(0, 0), "a purge left something"
        return purged

    def report(self) -> PoolReport:
        future = self.engine.report()
        self._between_steps()
        return future.result(timeout=0)

    def restart(self) -> None:
        """The engine stops: everybody hears of it, and what is cached goes down as far as it can. Then it is back."""
        self.engine.stop()
        self._between_steps()
        assert not self.live
        self.engine._desk.close()
        self._begin()
        self.fired["restart"] += 1
        self.fired["restart found something"] += len(self.pool.index) > 0
        self.check()

    # --- time passes --------------------------------------------------------------------------------------------------

    def step(self, count: int = 1, *, copies: int = 0) -> None:
        """``copies``: so many end before each step."""
        for _ in range(count):
            if copies:
                self.copier.release(copies)
            self._checked = False
            self.engine.turn()
            self.listener.check_searches(self.scheduler.running)
            if not self.scheduler.has_work:
                break

    def release(self, count: int | None, *, failing: bool = False) -> None:
        """Copies run; the engine hears of them in its next turn."""
        self.backend.failing = failing
        before = self.copier.in_flight
        self._checked = False
        self.copier.release(count)
        self.backend.failing = False
        if before:
            self.fired["copies failed" if failing else "copies ended"] += 1

    def run_copies(self) -> None:
        """All copies under way end, and the engine hears of them, without a step."""
        while not self.tiers.idle:
            self.copier.release()
            self.scheduler.poll()
        self._between_steps()

    def run_until_idle(self, limit: int = 3000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work and self.tiers.idle:
                break
            self.copier.release()
            self._checked = False
            self.engine.turn()
            self.listener.check_searches(self.scheduler.running)
        else:
            waiting = list(self.scheduler.waiting)
            raise AssertionError(
                f"still at work: {self.scheduler.running} run, {waiting} wait, {self.scheduler.report()}"
            )
        self.check()
        check_published(self)

    def close(self) -> None:
        """Everything comes to its end, and nothing is left behind."""
        self.backend.fault = ""
        self.run_until_idle()
        for job in self.jobs:
            assert not job.live, f"{job.request} never ended"
            assert job.request.state is RequestState.FINISHED or job.refused
        self.publish({})
        self.run_until_idle()
        for future in self._publishing:
            assert future.result(timeout=0).prefixes is not None
        ledgers = list(self.pool.accounts)
        assert not any(ledger.active for ledger in ledgers), "held by nobody, and active"
        assert self.pool.free_blocks + sum(ledger.cached for ledger in ledgers) == self.pool.total
        assert not self.pool.tables
        check_tiers_when_idle(self)
        count_at_the_end(self)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The invariants, unless nothing happened since they were checked last."""
        if self._checked:
            return
        self._checked = True
        self.scheduler.check()
        assert not self.backend.wrong, self.backend.wrong
        assert len(self.scheduler.running) <= self.shape.slots
        check_cache(self)
        check_tiers(self)
        check_draft_model(self)

    def _between_steps(self) -> None:
        """What was asked takes effect, without a step."""
        self.engine._drain()
        self.engine._desk.settle()
        self.engine._flush()
        self._checked = False
        self.check()
