"""What must hold of a whole engine beside the pool's own invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagoda_inference.kv.entry import Entry, ScopeRoot
from pagoda_inference.kv.prefix_index import pack
from pagoda_inference.kv.tiers.counters import TierUsage
from pagoda_inference.kv.tiers.space import Copy, Space

if TYPE_CHECKING:
    from tests.kv.engine_world import EngineWorld


def check_cache(world: EngineWorld) -> None:
    """A hit is the longest run of findable blocks with equal tokens and scope: found again here without any hash."""
    if not world.jobs:
        return
    job = world.jobs[-1]
    pool, size, command = world.pool, world.shape.block_size, job.command
    tokens = job.tokens
    chain = pool.chain(command.account, command.scope)
    found = pool.match(chain, tokens)
    entries = {(id(entry.parent), entry.packed): entry for entry in pool.index}
    parts = [pack(tokens[begin : begin + size]) for begin in range(0, (len(tokens) - 1) // size * size, size)]
    expected: list[Entry] = []
    parent: Entry | ScopeRoot = pool.index.public_root
    while len(expected) < len(parts):
        entry = entries.get((id(parent), parts[len(expected)]))
        if entry is None or entry.block is None:
            break
        expected.append(entry)
        parent = entry
    assert chain.public == len(expected), f"{chain.public} published blocks are found, {len(expected)} are there"
    parent = chain.root
    while len(expected) < len(parts):
        entry = entries.get((id(parent), parts[len(expected)]))
        if entry is None:
            break
        expected.append(entry)
        parent = entry
    assert found == expected, f"{len(found)} blocks are found, {len(expected)} are there"


def check_tiers(world: EngineWorld) -> None:
    """Bytes add up, and nothing of a deleted tenant is left."""
    for space in _spaces(world):
        space.check()
    if not world.pool.accounts.version:
        return  # everybody is known
    known = {ledger.id for ledger in world.pool.accounts if not ledger.retired}
    for entry in world.pool.index:
        assert entry.root.account in known, f"{entry.root.account} was deleted"
    for tenant in {job.command.account for job in world.jobs} - known:
        assert world.tiers.usage(tenant) == TierUsage(0, 0), f"{tenant} was deleted"


def check_draft_model(world: EngineWorld) -> None:
    """The draft model has the KV of all that is computed and of all that can be found, as the target has it."""
    if world.shape.drafter != "model":
        return
    size, entry = world.backend.bytes_per_block, world.backend.bytes_per_block // world.shape.block_size
    target, draft = world.backend._pool, world.draft._pool

    def check(id: int, count: int, whose: object) -> None:
        part = slice(id * size, id * size + count * entry)
        assert target[part] == draft[part], f"block {id} of {whose} differs in the draft model's pool"

    for request in world.scheduler.running:
        if not request.loading:
            for sequence in request.sequences:
                for place, id in enumerate(sequence.table.blocks if sequence.table is not None else []):
                    left = sequence.computed - place * world.shape.block_size
                    check(id, max(0, min(world.shape.block_size, left)), sequence.request)
    for found in world.pool.index:
        if found.block is not None:
            check(found.block.id, world.shape.block_size, found)


def check_published(world: EngineWorld) -> None:
    """With nothing under way, everybody finds what is published (where hashes do not collide)."""
    pool = world.pool
    for publication in world.scheduler.publications:
        assert not publication.computing
        if publication.error is None and not world.shape.collide:
            chain = pool.chain("a tenant", "its scope")
            found = pool.match(chain, [*publication.tokens, 0])
            assert len(found) >= publication.blocks > 0, "published, and not found"


def check_tiers_when_idle(world: EngineWorld) -> None:
    """With nothing on its way and nobody swapped, the bytes of a tier are those of findable entries."""
    index = world.pool.index
    for name, space in zip(("host", "disk"), _spaces(world), strict=False):
        copies = [getattr(entry, name) for entry in index if getattr(entry, name) is not None]
        assert all(isinstance(copy, Copy) and copy.live for copy in copies), f"a dead handle of the {name} tier"
        assert space.bytes == len(copies) * space.copy_bytes, f"{name}: {space.bytes} bytes, {len(copies)} entries"
        assert space.bytes <= space.capacity
    assert not any(ledger.leaving for ledger in world.pool.accounts)
    assert not world.transfers.leaving
    assert not world.transfers.in_flight


def _spaces(world: EngineWorld) -> list[Space]:
    tiers = world.tiers
    return [tiers._host.space, *([tiers._disk.space] if tiers._disk is not None else [])]
