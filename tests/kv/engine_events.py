"""Counts what happens inside an engine: what never happened was not tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.kv.engine_world import EngineWorld


OFTEN = [
    "hit", "copy on write", "fork", "exhausted", "evicted own_lru", "evicted over_share", "preempt recompute",
    "preempt swap", "resumed from swap", "demoted host", "tenant deleted", "aborted running", "aborted waiting",
    "refused kv_limit_exceeded", "finished length", "finished error", "draft right", "draft wrong",
]  # fmt: skip
"""Expected of 60 examples already."""

SELDOM = [
    "published hit", "beam ended", "beams found", "beams cut short", "answer ended before the others",
    "deleted with live work", "evicted reclaimed", "evicted limit_lowered", "stow refused", "step computed again",
    "copies ended", "copies failed", "quotas refused", "publish kept", "withdrawn",
    "purge hit", "purge hit a tier", "purge while it runs", "slot victim",
    "load whole", "promoted host", "promoted disk", "demoted disk",
    "unstow found blocks in the pool", "restart found something",
    "refused unknown_account", "refused queue_full", "refused invalid_request", "error model_error",
    "error kv_limit_exceeded", "error unknown_account", "finished stop", "finished cancelled",
    "token behind the end",
]  # fmt: skip
"""Expected of 400 examples."""

RARE = [
    "load cut short", "late load", "stow failed", "stowed for nobody", "aborted while loading",
    "aborted while leaving", "aborted while swapped", "reservations scaled",
    "no drafts for who is ahead",
]  # fmt: skip
"""Expected of 2,000 examples; counted in all."""


def count_at_the_end(world: EngineWorld) -> None:
    """What ledgers and the backend counted themselves."""
    fired = world.fired
    for ledger in world.pool.accounts:
        fired.update({f"evicted {cause}": count for cause, count in ledger.evictions.items()})
        fired.update({f"preempt {kind}": count for kind, count in ledger.preemptions.items()})
        fired.update({f"promoted {tier}": count for tier, count in ledger.promoted.items()})
        fired.update({f"demoted {tier}": count for tier, count in ledger.demoted.items()})
    fired["copy on write"] += world.backend.copied
    fired["step computed again"] += world.backend.retried


def watch(world: EngineWorld) -> None:
    """Listen at the verbs of the pool, the scheduler and the transfers; what they do stays the same."""
    fired = world.fired
    transfers, scheduler = world.transfers, world.scheduler

    def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *arguments, **named: wrapper(original, *arguments, **named))

    def stow(original: Callable[..., bool], ledger: Any, blocks: Any, done: Callable[[Any], None]) -> bool:
        def ended(stowed: Any) -> None:
            fired["stow failed"] += stowed is None
            fired["stowed for nobody"] += stowed is not None and stowed.live and not _wanted(world, done)
            done(stowed)

        taken = original(ledger, blocks, ended)
        fired["stow refused"] += not taken
        return taken

    def unstow(original: Callable[..., None], stowed: Any, places: Any, done: Callable[[bool], None]) -> None:
        tables = [table for table in world.pool.tables if {block for _, block in places} & set(table.blocks)]

        def ended(intact: bool) -> None:
            fired["resumed from swap" if intact else "unstow failed"] += 1
            fired["late unstow"] += bool(tables) and not any(table in world.pool.tables for table in tables)
            done(intact)

        fired["unstow found blocks in the pool"] += len(places) < stowed.count
        original(stowed, places, ended)

    def load(original: Callable[..., None], wanted: Any, done: Callable[[int], None]) -> None:
        tables = [table for table in world.pool.tables if wanted[0][1] in table.blocks]

        def ended(arrived: int) -> None:
            fired["load whole" if arrived == len(wanted) else "load cut short"] += 1
            fired["late load"] += not any(table in world.pool.tables for table in tables)
            done(arrived)

        original(wanted, ended)

    def fork(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        fired["fork"] += 1
        return original(*arguments, **named)

    def branch(original: Callable[..., None], request: Any, picks: Any) -> None:
        picked = {index for index, _ in picks}
        fired["beam ended"] += len(picked) < len(request.sequences)
        original(request, picks)

    def slot_victim(original: Callable[..., Any], ledger: Any) -> Any:
        victim = original(ledger)
        fired["slot victim"] += victim is not None
        return victim

    def finish_sequence(original: Callable[..., None], sequence: Any) -> None:
        fired["answer ended before the others"] += 1
        original(sequence)

    def schedule(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        step = original(*arguments, **named)
        fired["exhausted"] += len(step.exhausted)
        fired["paused"] += step.paused
        return step

    def evict(original: Callable[..., None], victim: Any, cause: str, taker: Any) -> None:
        assert victim is taker or victim.held > victim.reservation, "evicted below its reservation"
        original(victim, cause, taker)

    def decode(original: Callable[..., None], step: Any, *limits: Any) -> None:
        original(step, *limits)
        for request in step.exhausted:
            own = [other for other in scheduler.running if other.account == request.account]
            assert own == [request], "exhausted, and not alone"

    def take_back(original: Callable[..., None], sequence: Any) -> None:
        fired["token behind the end"] += 1
        original(sequence)

    def may_decode(ledger: Any, tokens: int) -> bool:
        allowed = world.scheduler.may_decode(ledger, tokens)
        fired["no drafts for who is ahead"] += not allowed
        return allowed

    if world.speculation is not None:
        world.speculation._may_decode = may_decode
    around(scheduler, "take_back", take_back)
    around(scheduler._decodes, "schedule", decode)
    around(world.pool._eviction, "evict", evict)
    around(transfers, "stow", stow)
    around(transfers, "unstow", unstow)
    around(transfers, "load", load)
    around(world.pool, "fork", fork)
    around(scheduler, "branch", branch)
    around(scheduler, "finish_sequence", finish_sequence)
    around(scheduler, "schedule", schedule)
    around(scheduler._admission, "_slot_victim", slot_victim)


def _wanted(world: EngineWorld, done: Callable[[Any], None]) -> bool:
    """Whether a request still waits for what was stowed."""
    swaps = [cell.cell_contents for cell in done.__closure__ or ()]
    return any(request.swap is not None and request.swap in swaps for request in world.scheduler.waiting)
