"""What an operator does to a pool: publish, edit quotas, delete accounts and conversations. Beside the model."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda_inference.kv.accounts import AccountsRefused, Ledger
from pagoda_inference.kv.prefix_index import PUBLIC
from pagoda_inference.protocol import Account
from tests.kv.pool_expectations import snapshot
from tests.kv.pool_model import Held, PoolModel


class OperatedPool(PoolModel):
    """A pool model with an operator. Makes room as the scheduler does: whoever is above gives way."""

    version = 0

    # --- published prefixes -------------------------------------------------------------------------------------------

    def publish(self, tokens: Sequence[int]) -> None:
        """As the scheduler does it: the public account grows, others make room, the prefix is written and kept."""
        pool, blocks = self.pool, len(tokens) // self.size
        tokens = tokens[: blocks * self.size]
        chain = pool.chain(PUBLIC, PUBLIC)
        run = pool.match(chain, tokens) if blocks else []
        if not blocks or blocks - len(run) > pool.total - pool.accounts.reserved:
            self.fired["publishing refused"] += 1
            return
        public = pool.accounts.public
        pool.accounts.resize_public(public.held + blocks - len(run))
        self._make_reservations_reachable()
        table = pool.open_table(public, chain)
        pool.adopt(table, run)
        pool.append(table, len(run) * self.size, len(tokens))
        held = Held(table, tokens, len(run) * self.size)
        self.published.append(held)
        self.fired["published"] += 1
        for position in range(held.written, len(tokens)):
            self.memory[table.blocks[position // self.size], position % self.size] = (tokens[position], position)
        held.written = len(tokens)
        self.commit(held, held.written)

    def unpublish(self, held: Held) -> None:
        self.published.remove(held)
        elsewhere = {id for other in self.published for id in other.table.blocks}
        users = {id for other in self.held for id in other.table.blocks}
        for id in reversed(held.table.blocks):
            entry = self.pool.block(id).entry
            if entry is not None and id not in elsewhere:
                self.fired["unpublished in use"] += id in users
                self.pool.unpublish(entry)
        self.pool.free(held.table)

    # --- accounts -----------------------------------------------------------------------------------------------------

    def set_accounts(self, accounts: list[Account]) -> None:
        """As the scheduler does it: who is gone is purged and retired, who is above gives way."""
        before = snapshot(self.pool)
        try:
            gone = self.pool.accounts.replace(accounts, self.version + 1)
        except AccountsRefused:
            self.fired["quotas refused"] += 1
            assert snapshot(self.pool) == before, "a refused edit changed something"
            return
        self.version += 1
        for ledger in gone:
            while youngest := self._youngest(ledger):
                self.free(youngest)
            self.pool.purge(ledger)
            assert not ledger.cached
            assert not any(entry.root.account == ledger.id for entry in self.pool.index)
            self.pool.accounts.retire(ledger)
            self.fired["account retired"] += 1
        self.pool.quotas_changed()
        for ledger in self.pool.accounts:
            for blocks in list(self.copies) if ledger.active > ledger.limit else ():
                self.end_copy(blocks)
            while ledger.active > ledger.limit and (youngest := self._youngest(ledger)):
                self.free(youngest)
            self.pool.evict_above_limit(ledger)
        self._make_reservations_reachable()

    def purge_lineage(self, account: str, lineage: str) -> None:
        """A conversation is gone: what only it used cannot be found any more, what others used can."""
        index = self.pool.index
        users = {id(entry): set(entry.lineages) for entry in index if entry.root.account == account}
        entries = list(index)
        gone, _ = self.pool.purge_lineage(account, lineage)
        for entry in entries:
            used = users.get(id(entry))
            lost = used == {lineage}
            assert index.is_known(entry) != lost, f"{used} without {lineage}"
            assert used is None or lineage not in entry.lineages
            self.fired["kept for another lineage"] += used is not None and lineage in used and not lost
        assert gone == sum(1 for used in users.values() if used == {lineage})
        self.fired["lineage purged"] += bool(gone)

    def _youngest(self, ledger: Ledger) -> Held | None:
        return next((held for held in reversed(self.held) if held.table.account is ledger), None)

    def _make_reservations_reachable(self) -> None:
        accounts = self.pool.accounts
        for blocks in list(self.copies) if accounts.committed > accounts.total else ():
            self.end_copy(blocks)  # as the scheduler waits for them
        while accounts.committed > accounts.total and self.held:
            self.fired["gave way"] += 1
            self.free(max(self.held, key=lambda held: held.table.account.active_excess))
