"""The pool: accounts, published prefixes, purges, and what the engine reports of them. Counts are in blocks."""

from __future__ import annotations

from pagoda_inference.protocol.generation import ChatMessage
from pagoda_inference.protocol.message import Error, Message


class Account(Message, frozen=True):
    """A tenant's ledger in the pool, in blocks. ``limit`` None is the whole pool. reservation <= limit, weight > 0.

    ``host_bytes`` and ``disk_bytes`` bound what it keeps in those tiers; None: whatever the tier has.
    """

    id: str
    reservation: int = 0
    limit: int | None = None
    weight: float = 1.0
    host_bytes: int | None = None
    disk_bytes: int | None = None


class SetAccounts(Message, frozen=True):
    """The full list of accounts. Idempotent: a ``version`` not above the engine's own is ignored.

    Accounts missing from the list are deleted: their running work is aborted and their blocks are purged from every
    tier. ``pool_blocks``: size of the pool that the reservations were made for. Where the engine has fewer and they no
    longer fit, they are scaled down in proportion and an alert is raised; without it such a list is refused.
    """

    version: int
    accounts: tuple[Account, ...]
    pool_blocks: int | None = None


class AccountsSet(Message, frozen=True):
    """``version`` now in force; ``error`` says why the list was refused as a whole (nothing changed).

    ``scaled``: factor that reservations were multiplied with because the pool shrank (1.0: none).
    """

    version: int
    applied: bool
    error: Error | None = None
    scaled: float = 1.0


class Prefix(Message, frozen=True):
    """A text that all tenants may share the KV of. Exactly one of ``messages``, ``text``, ``token_ids`` is set.

    messages: the turns that conversations begin with, usually one system message; what every conversation that begins
    with them has in common is published. Whole blocks only.
    """

    id: str
    messages: tuple[ChatMessage, ...] | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None


class Publish(Message, frozen=True):
    """The full list of published prefixes. Idempotent: a ``version`` not above the engine's own is ignored.

    What is new is computed at once; what is missing from the list is no longer found by anybody, and freed.
    """

    version: int
    prefixes: tuple[Prefix, ...]


class PublishedPrefix(Message, frozen=True):
    """``blocks`` that it holds, shared with other published prefixes included; ``error`` says why it is not there."""

    id: str
    tokens: int
    blocks: int
    error: Error | None = None


class Published(Message, frozen=True):
    """``version`` now in force, and what became of each prefix. Prefixes that do not fit are refused one by one."""

    version: int
    applied: bool
    prefixes: tuple[PublishedPrefix, ...] = ()


class Purge(Message, frozen=True):
    """Conversations were deleted: drop their blocks from every tier, except those that others use too. Idempotent."""

    account: str
    lineages: tuple[str, ...]


class Purged(Message, frozen=True):
    """``blocks`` of the pool and ``stored`` copies in the tiers that are gone."""

    blocks: int
    stored: int = 0


class Watch(Message, frozen=True):
    """Ask for pool reports; ``interval_s`` between them (0: one report, then the stream ends)."""

    interval_s: float = 1.0


class AccountReport(Message, frozen=True):
    """One account's share of the pool, in blocks, and its counters since the engine started."""

    id: str
    active: int
    cached: int
    shared: int
    reservation: int
    limit: int
    weight: float
    reserved_unused: int
    running: int
    waiting: int
    hit_tokens: int
    queried_tokens: int
    tokens_in: int
    tokens_out: int
    evictions: dict[str, int]
    """By cause: own_lru, reclaimed, over_share, limit_lowered."""
    evicted_by: dict[str, int]
    """By whom (account id): for operators only."""
    preemptions: dict[str, int]
    """By kind: recompute, swap."""
    queue_wait_s: float = 0.0
    """Total time requests waited for admission."""
    tier_bytes: dict[str, int] = {}
    """Bytes kept by tier: host, disk."""
    tier_limits: dict[str, int] = {}
    """Most bytes it may keep by tier."""
    demoted: dict[str, int] = {}
    """Blocks copied down by tier: host, disk."""
    promoted: dict[str, int] = {}
    """Blocks copied back to the pool by the tier they came from: host, disk."""


class PoolReport(Message, frozen=True):
    """The pool at one step. ``free + sum(active + cached over accounts) == total`` exactly."""

    instance: str
    step: int
    time: float
    total: int
    free: int
    block_size: int
    bytes_per_block: int
    accounts_version: int
    accounts: tuple[AccountReport, ...]
    published_version: int = 0
    tier_totals: dict[str, int] = {}
    """Size of each tier in bytes."""
    tier_events: dict[str, dict[str, int]] = {}
    """Blocks since the engine started, by tier: stored and loaded; dropped to make room, kept nowhere else; failed."""
    scaled: float = 1.0
    """What reservations are multiplied with because the pool is smaller than the one they were made for."""
    alerts: tuple[str, ...] = ()
    """What an operator should look at, one sentence each."""
