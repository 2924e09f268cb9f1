"""Published prefixes: computed once, kept for everybody, until the operator takes them back.

A publication is a table of the public account that is never freed while it is published. Publishing raises that
account's reservation, so it may preempt like any raised reservation; it is refused where the reservations do not leave
the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.prefix_index import PUBLIC
from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.quotas import preempt_above_total
from pagoda_inference.scheduling.sequence import Request, Sequence
from pagoda_inference.scheduling.workload import Workload


class Publication:
    """One published prefix. ``tokens``: whole blocks. ``error`` says why it is not there."""

    def __init__(self, id: str, tokens: SequenceOf[int]) -> None:
        self.id = id
        self.tokens = list(tokens)
        self.request: Request | None = None
        self.table: BlockTable | None = None
        self.error: Error | None = None

    @property
    def computing(self) -> bool:
        return self.request is not None

    @property
    def blocks(self) -> int:
        return 0 if self.table is None or self.computing else len(self.table.blocks)


class Publications:
    """All published prefixes of a pool."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._pool = workload.pool
        self._published: list[Publication] = []

    def __iter__(self) -> Iterator[Publication]:
        return iter(list(self._published))

    def replace(self, prefixes: SequenceOf[tuple[str, SequenceOf[int]]], now: float) -> list[Publication]:
        """Publish exactly these. What is new is scheduled at once; ``computing`` says when it is there.

        Prefixes are cut to whole blocks. One that does not fit is refused alone (``error``).
        """
        size = self._pool.block_size
        wanted = [Publication(id, tokens[: len(tokens) // size * size]) for id, tokens in prefixes]
        kept: dict[tuple[int, ...], list[Publication]] = {}  # some may be equal, cut to whole blocks
        for publication in self._published:
            if not publication.error:
                kept.setdefault(tuple(publication.tokens), []).append(publication)
        after: list[Publication] = []
        for publication in wanted:
            equal = kept.get(tuple(publication.tokens))
            known = equal.pop(0) if equal else publication
            known.id = publication.id
            after.append(known)
        for publication in [publication for equal in kept.values() for publication in equal]:
            self._withdraw(publication)
        self._published = after
        for publication in after:
            if publication.table is None:
                self._begin(publication, now)
        self._forget_matches()
        return after

    def computed(self, request: Request) -> None:
        """The prefix of this request is in the pool now: it stays."""
        for publication in self._published:
            if publication.request is request:
                publication.request = None
                self._workload.publishing.remove(request)
                self._forget_matches()

    def failed(self, request: Request, message: str) -> None:
        """The model could not compute the prefix."""
        for publication in self._published:
            if publication.request is request:
                publication.error = Error("model_error", message)
                self._withdraw(publication)

    def _forget_matches(self) -> None:
        """Those who wait look again: their chains begin with other blocks now."""
        for request in self._workload.waiting:
            request.match = None

    def _begin(self, publication: Publication, now: float) -> None:
        pool = self._pool
        blocks = len(publication.tokens) // pool.block_size
        if not blocks:
            publication.error = Error(
                "invalid_request",
                f"The prefix is shorter than a block of {pool.block_size} tokens: there is nothing to share.",
            )
            return
        request = Request(
            id=publication.id,
            account=PUBLIC,
            scope=PUBLIC,
            lineage="",
            request_class="interactive",
            arrival=now,
            max_tokens=0,
        )
        request.publishes = True
        request.ledger = pool.accounts.public
        sequence = Sequence(request, publication.tokens, Sampler())
        request.sequences.append(sequence)
        sequence.chain = pool.chain(PUBLIC, PUBLIC)
        run = pool.match(sequence.chain, sequence.tokens)
        room = pool.total - pool.accounts.reserved
        if blocks - len(run) > room:
            publication.error = Error(
                "kv_limit_exceeded",
                f"The prefix needs {blocks - len(run)} KV blocks and reservations leave {room}: lower a reservation or "
                "shorten the prefix.",
                {"needed_blocks": blocks - len(run), "limit_blocks": room, "block_size": pool.block_size},
            )
            return
        pool.accounts.resize_public(pool.accounts.public.held + blocks - len(run))
        preempt_above_total(self._workload)
        if pool.accounts.committed > pool.total:
            pool.accounts.resize_public(pool.accounts.public.held)
            publication.error = Error("unavailable", "Blocks are still being copied to a tier: publish again.")
            return
        sequence.table = publication.table = pool.open_table(request.ledger, sequence.chain)
        pool.adopt(sequence.table, run)
        sequence.computed = len(run) * pool.block_size
        pool.append(sequence.table, sequence.computed, len(sequence.tokens))
        publication.request = request
        self._workload.publishing.append(request)

    def _withdraw(self, publication: Publication) -> None:
        """Nobody finds it any more; blocks that running requests read are free when these end."""
        if publication.request is not None:
            self._workload.publishing.remove(publication.request)
            publication.request = None
        table = publication.table
        if table is None:
            return
        publication.table = None
        elsewhere = {id for other in self._published if other.table is not None for id in other.table.blocks}
        for id in reversed(table.blocks):
            entry = self._pool.block(id).entry
            if entry is not None and id not in elsewhere:
                self._pool.unpublish(entry)
        self._pool.free(table)
