"""The pool's own verbs in any order, beside a model of what every slot contains; checked after every action."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagoda_inference.kv.prefix_index import chain_digest
from pagoda_inference.protocol import Account
from tests.kv.happened import check_all_happened
from tests.kv.operated_pool import OperatedPool
from tests.kv.pool_model import Held, two_bit_digest

FIRED: Counter[str] = Counter()
"""How often each thing happened over all examples: what never happened was not tested."""

TENANTS = ["acme", "globex", "initech"]
SCOPES = [None, None, "user:ada", "user:bob"]


class PoolVerbs(RuleBasedStateMachine):
    """Three tenants and what is published, tiny pools, two tokens: shared prefixes and collisions everywhere."""

    @initialize(
        blocks=st.integers(1, 20) | st.integers(8, 20), size=st.sampled_from([1, 2, 4, 16]), collide=st.booleans()
    )
    def start(self, blocks: int, size: int, collide: bool) -> None:
        self.model = OperatedPool(blocks, size, two_bit_digest if collide else chain_digest, FIRED)
        self.prompts: list[list[int]] = []

    # --- tables -------------------------------------------------------------------------------------------------------

    @rule(
        account=st.sampled_from(TENANTS),
        scope=st.sampled_from(SCOPES),
        lineage=st.sampled_from(["", "chat", "chat", "other chat"]),
        known=st.integers(0, 30),
        ending=st.integers(2, 2**18 - 1),
        to_the_end=st.sampled_from([True, False, False]),
        most=st.sampled_from([None, None, None, 1]),
    )
    def open(self, account, scope, lineage, known, ending, to_the_end, most) -> None:
        """A prompt, often beginning like another; mostly it is computed, kept findable and given back at once."""
        beginning = self.prompts[known % len(self.prompts)] if self.prompts and known else []
        tokens = (beginning + [int(bit) for bit in f"{ending:b}"[1:]])[:48]
        self.prompts.append(tokens)
        before = len(self.model.held)
        self.model.open(account, scope or f"tenant:{account}", lineage, tokens, most)
        if to_the_end and len(self.model.held) > before:
            self.append_to(self.model.held[-1])
            self.model.free(self.model.held[-1])

    def append_to(self, held: Held) -> None:
        """All its tokens, computed and findable."""
        self.model.append(held, max(0, len(held.tokens) - held.written))
        self.model.commit(held, held.written)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), count=st.integers(1, 20))
    def append(self, data: st.DataObject, count: int) -> None:
        self.model.append(self._held(data), count)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        held = self._held(data)
        self.model.commit(held, data.draw(st.integers(0, held.written) | st.just(held.written)))

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), whole=st.booleans(), go_on=st.booleans())
    def fork(self, data: st.DataObject, whole: bool, go_on: bool) -> None:
        held = self._held(data)
        self.model.fork(held, None if whole else data.draw(st.integers(0, held.written)))
        if go_on:
            self.model.append(self.model.held[-1], 1)
            self.model.append(held, 1)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), blocks=st.integers(0, 4))
    def share(self, data: st.DataObject, blocks: int) -> None:
        self.model.share(self._held(data), blocks)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), blocks=st.integers(0, 4))
    def truncate(self, data: st.DataObject, blocks: int) -> None:
        self.model.truncate(self._held(data), blocks)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.model.free(self._held(data))

    # --- copies -------------------------------------------------------------------------------------------------------

    @rule(account=st.sampled_from(TENANTS), count=st.integers(1, 3))
    def copy_cached(self, account: str, count: int) -> None:
        self.model.copy_cached(account, count)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def copy_table(self, data: st.DataObject) -> None:
        self.model.copy_table(self._held(data))

    @precondition(lambda self: self.model.copies)
    @rule(data=st.data())
    def end_copy(self, data: st.DataObject) -> None:
        self.model.end_copy(data.draw(st.sampled_from(self.model.copies)))

    # --- the operator -------------------------------------------------------------------------------------------------

    @rule(known=st.integers(0, 30), blocks=st.integers(1, 3))
    def publish(self, known: int, blocks: int) -> None:
        prompt = self.prompts[known % len(self.prompts)] if self.prompts else [0, 1] * 24
        self.prompts.append(prompt[: blocks * self.model.size])
        self.model.publish(self.prompts[-1])

    @precondition(lambda self: self.model.published)
    @rule(data=st.data())
    def unpublish(self, data: st.DataObject) -> None:
        self.model.unpublish(data.draw(st.sampled_from(self.model.published)))

    @rule(account=st.sampled_from(TENANTS), lineage=st.sampled_from(["chat", "chat", "other chat"]))
    def purge_lineage(self, account: str, lineage: str) -> None:
        self.model.purge_lineage(account, lineage)

    @rule(
        shares=st.integers(0, 8**3 - 1),
        slacks=st.integers(0, 8**3 - 1),
        deleted=st.sampled_from([*TENANTS, None, None, None, None]),
        scale=st.sampled_from([0.3, 0.3, 0.3, 1.5]),
    )
    def edit_quotas(self, shares: int, slacks: int, deleted: str | None, scale: float) -> None:
        """Mostly valid: reservations that fit together, limits from just above the reservation to above the pool."""
        total = self.model.pool.total
        accounts = []
        for place, tenant in enumerate(TENANTS):
            share, slack = (shares >> 3 * place) % 8 / 7, (slacks >> 3 * place) % 8 / 6
            reservation = int(share * scale * total)
            limit = None if slack > 1 else max(reservation, int(slack * total))
            if tenant != deleted:
                accounts.append(Account(tenant, reservation, limit, (0.5, 1.0, 3.0)[(shares + place) % 3]))
        self.model.set_accounts(accounts)

    @rule(account=st.sampled_from(TENANTS), known=st.integers(0, 30), alike=st.sampled_from(["", "other chat", "chat"]))
    def delete_conversation(self, account: str, known: int, alike: str) -> None:
        """Two conversations that begin alike, or one twice; then one is deleted."""
        prompt = (self.prompts[known % len(self.prompts)] if self.prompts else [])[: 2 * self.model.size]
        for lineage, ending in (("chat", [0, 1] * self.model.size), (alike, [1, 0] * self.model.size)):
            before = len(self.model.held)
            self.model.open(account, f"tenant:{account}", lineage, prompt + ending)
            if len(self.model.held) > before:
                self.append_to(self.model.held[-1])
                self.model.free(self.model.held[-1])
        self.model.purge_lineage(account, "chat")

    @rule(account=st.sampled_from(TENANTS), rival=st.sampled_from(TENANTS), seed=st.integers(0, 9))
    def reclaim(self, account: str, rival: str, seed: int) -> None:
        """A rival's cache fills the pool, then a tenant comes back for its reservation."""
        total, size = self.model.pool.total, self.model.size
        quotas = [Account(name, total // 3 if name == account else 0) for name in TENANTS]
        self.model.set_accounts(quotas)
        for turn in range(4):
            tokens = [(seed * i + turn * i * i + i // 3) % 2 for i in range(min(3, total) * size)]
            self.model.open(rival, f"tenant:{rival}", "", tokens[:48])
            if self.model.held:
                self.append_to(self.model.held[-1])
                self.model.free(self.model.held[-1])
        self.model.open(account, f"tenant:{account}", "", [0, 1] * (total * size // 6) + [1])
        if self.model.held and self.model.held[-1].table.account.id == account:
            self.append_to(self.model.held[-1])

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "model"):
            self.model.check()

    def teardown(self) -> None:
        """When all is given back nothing is held."""
        if hasattr(self, "model"):
            model = self.model
            for blocks in list(model.copies):
                model.end_copy(blocks)
            for held in list(model.published):
                model.unpublish(held)
            for held in list(model.held):
                model.free(held)
            model.check()
            pool = model.pool
            for ledger in pool.accounts:
                FIRED["limit_lowered"] += ledger.evictions.get("limit_lowered", 0)
            assert all(block.references == 0 for block in pool.known_blocks())
            assert pool.free_blocks + sum(ledger.cached for ledger in pool.accounts) == pool.total

    def _held(self, data: st.DataObject) -> Held:
        return self.model.held[data.draw(st.integers(0, len(self.model.held) - 1))]


TestPoolVerbs = pytest.mark.timeout(3600)(PoolVerbs.TestCase)
TestPoolVerbs.settings = settings(
    max_examples=int(os.environ.get("PAGODA_TEST_EXAMPLES", "200")),
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
)


@pytest.mark.timeout(3600)
def test_everything_happened() -> None:
    """Runs after the machine: what never fired was not tested."""
    wanted = ["own_lru", "reclaimed", "over_share", "limit_lowered", "exhausted", "hit", "public hit"]
    wanted += ["private after public", "dedupe", "collision", "copy on write", "published", "publishing refused"]
    wanted += ["unpublished in use", "quotas refused", "unknown account", "account retired", "gave way"]
    wanted += ["lineage purged", "kept for another lineage"]
    if int(os.environ.get("PAGODA_TEST_EXAMPLES", "200")) >= 1000:
        wanted += ["orphan replaced", "copy outlived its account"]  # rare
    check_all_happened(PoolVerbs, TestPoolVerbs.settings, FIRED, wanted)
