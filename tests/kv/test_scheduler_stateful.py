"""Anything may happen in any order to the pool and the scheduler; the invariants hold after every action."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.kv.prefix_index import chain_digest
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.scheduler import RequestRefused
from tests.kv.happened import check_all_happened
from tests.kv.pool_model import two_bit_digest
from tests.kv.simulation import VOCABULARY
from tests.kv.world import World

EXAMPLES = int(os.environ.get("PAGODA_TEST_EXAMPLES", "200"))

FIRED: Counter[str] = Counter()
"""How often each thing happened over all examples: what never happened was not tested."""

TENANTS = ["acme", "globex", "initech"]


class PoolAndScheduler(RuleBasedStateMachine):
    """Three tenants, tiny pools, few tokens: collisions, evictions and preemptions everywhere."""

    @initialize(
        blocks=st.integers(1, 20) | st.integers(8, 20),
        block_size=st.sampled_from([1, 2, 4, 16]),
        budget=st.integers(4, 24),
        slots=st.integers(1, 4),
        collide=st.booleans(),
    )
    def start(self, blocks: int, block_size: int, budget: int, slots: int, collide: bool) -> None:
        digest = two_bit_digest if collide else chain_digest
        self.simulation = World(blocks, block_size, token_budget=budget, max_running=slots, digest=digest)
        self.requests: list = []
        self.version = 0

    @rule(
        tenant=st.sampled_from(TENANTS),
        prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40),
        max_tokens=st.integers(1, 30),
        request_class=st.sampled_from(["interactive", "api", "batch"]),
        lineage=st.sampled_from(["", "chat"]),
        several=st.sampled_from([{}, {}, {"samples": 3}, {"beam_width": 3}]),
    )
    def submit(
        self, tenant: str, prompt: list[int], max_tokens: int, request_class: str, lineage: str, several: dict[str, int]
    ) -> None:
        try:
            request = self.simulation.submit(
                tenant, prompt, max_tokens, request_class=request_class, lineage=lineage, **several
            )
            self.requests.append(request)
            FIRED.update(several.keys())
        except RequestRefused as refusal:
            assert refusal.error.code in {"kv_limit_exceeded", "unknown_account"}
            FIRED[f"refused {refusal.error.code}"] += 1

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A request of before comes again, with its answer: the next turn of a conversation."""
        request = data.draw(st.sampled_from(self.requests))
        if not request.sequences:
            return
        sequence = request.sequences[0]
        account = sequence.request.account
        try:
            self.requests.append(self.simulation.submit(account, list(sequence.tokens), 4))
        except RequestRefused as refusal:
            assert refusal.error.code in {"kv_limit_exceeded", "unknown_account"}
            FIRED[f"refused {refusal.error.code}"] += 1

    @rule(tenant=st.sampled_from(TENANTS), seed=st.integers(0, 9))
    def fill(self, tenant: str, seed: int) -> None:
        """One tenant's finished work fills the pool with its cached blocks."""
        pool = self.simulation.pool
        for turn in range(6):
            length = max(1, min(4, pool.total - 1) * pool.block_size)
            tokens = [(seed * i + turn * i * i + i // 3) % VOCABULARY for i in range(length)]
            self.submit(tenant, tokens, 1, "api", "", {})
            self.step(3)

    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        """A tenant comes back for a reservation that a rival's cache has borrowed."""
        tenant, rival = data.draw(st.permutations(TENANTS))[:2]
        total = self.simulation.pool.total
        quotas = {name: (0.0, 2.0, 1.0) for name in TENANTS} | {tenant: (0.5, 2.0, 1.0)}
        self.edit_quotas([quotas[name] for name in TENANTS], None, 1.0)
        self.fill(rival, data.draw(st.integers(0, 9)))
        self.submit(tenant, [0, 3] * max(1, total * self.simulation.pool.block_size // 6), 1, "interactive", "", {})
        self.step(3)

    @rule(count=st.integers(1, 25))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.simulation.step()

    @rule()
    def step_fails(self) -> None:
        self.simulation.step(fails=True)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        live = [*self.simulation.scheduler.running, *self.simulation.scheduler.waiting]
        self.simulation.abort(data.draw(st.sampled_from(live or self.requests)))

    @rule(tenant=st.sampled_from(TENANTS))
    def delete_conversation(self, tenant: str) -> None:
        blocks, stored = self.simulation.scheduler.purge(tenant, "chat")
        FIRED["lineage purged"] += bool(blocks)
        assert not stored

    @rule(tenant=st.sampled_from(TENANTS), seed=st.integers(0, 9))
    def conversation_comes_and_goes(self, tenant: str, seed: int) -> None:
        """A conversation leaves blocks behind, and is deleted."""
        self.submit(tenant, [seed] * (self.simulation.pool.block_size + 1), 1, "api", "chat", {})
        self.step(3)
        self.delete_conversation(tenant)

    @rule(tenant=st.sampled_from(TENANTS))
    def delete_tenant(self, tenant: str) -> None:
        """A tenant is deleted while it has an answer under way, beside whatever else is going on."""
        self.submit(tenant, [1, 2], 30, "interactive", "", {})
        self.step(1)
        self.edit_quotas([(0.0, 2.0, 1.0)] * len(TENANTS), tenant, 1.0)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(0, 2))
    def publish(self, data: st.DataObject, count: int) -> None:
        """Prefixes that requests of before began with."""
        requests = [data.draw(st.sampled_from(self.requests)) for _ in range(count)]
        length = data.draw(st.integers(1, 3)) * self.simulation.pool.block_size
        sequences = [request.sequences[0].tokens for request in requests if request.sequences]
        FIRED.update(
            f"published {error}" for error in self.simulation.publish(*(tokens[:length] for tokens in sequences))
        )

    @rule(
        quotas=st.lists(
            st.tuples(st.floats(0, 1), st.floats(0, 1.2), st.sampled_from([0.5, 1.0, 3.0])), min_size=3, max_size=3
        ),
        deleted=st.sampled_from([*TENANTS, None, None, None, None]),
        scale=st.sampled_from([0.3, 0.3, 0.3, 1.5]),
    )
    def edit_quotas(self, quotas: list[tuple[float, float, float]], deleted: str | None, scale: float) -> None:
        """Mostly valid: reservations that fit together, limits from just above the reservation to above the pool."""
        total = self.simulation.pool.total
        accounts = []
        for tenant, (share, slack, weight) in zip(TENANTS, quotas, strict=True):
            reservation = int(share * scale * total)
            limit = None if slack > 1 else max(reservation, int(slack * total))
            if tenant != deleted:
                accounts.append(Account(tenant, reservation, limit, weight))
        self.version += 1
        try:
            self.simulation.set_accounts(accounts, self.version)
        except AccountsRefused as refusal:
            assert refusal.error.code == "invalid_request"
            FIRED["quotas refused"] += 1

    @invariant()
    def everything_holds(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        """Anything admitted or waiting finishes; then no block is held."""
        if hasattr(self, "simulation"):
            self.simulation.run()
            pool = self.simulation.pool
            for ledger in pool.accounts:
                FIRED.update(ledger.evictions)
                FIRED.update({f"preempt {kind}": count for kind, count in ledger.preemptions.items()})
                FIRED["hit tokens"] += ledger.hit_tokens
            FIRED.update(f"finished {reason}" for _, reason in self.simulation.finished.values())
            self.simulation.publish()
            assert sum(ledger.active for ledger in pool.accounts) == 0
            assert pool.free_blocks + sum(ledger.cached for ledger in pool.accounts) == pool.total


TestPoolAndScheduler = pytest.mark.timeout(3600)(PoolAndScheduler.TestCase)
TestPoolAndScheduler.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=32,
    deadline=None,
    print_blob=True,
)


@pytest.mark.timeout(3600)
def test_everything_happened() -> None:
    """Runs after the machine: an eviction cause, a preemption or an ending that never fired was not tested."""
    wanted = [
        "own_lru",
        "reclaimed",
        "over_share",
        "limit_lowered",
        "preempt recompute",
        "hit tokens",
        "lineage purged",
    ]
    wanted += ["samples", "beam_width", "published None"]
    wanted += ["quotas refused", "refused kv_limit_exceeded", "refused unknown_account"]
    wanted += [
        f"finished {reason}" for reason in ("stop", "length", "cancelled", "unknown_account", "kv_limit_exceeded")
    ]
    if EXAMPLES >= 1000:  # seldom
        wanted += ["published kv_limit_exceeded"]
    check_all_happened(PoolAndScheduler, TestPoolAndScheduler.settings, FIRED, wanted)
