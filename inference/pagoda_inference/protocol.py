"""The wire between the platform and an engine: every message, as one typed module.

gRPC carries these structs as msgpack through custom serialisers (``method_table``), so this module *is* the schema and
no generated code exists. Nothing here imports torch, transformers or Django: both sides can import it.

Rules of the wire:

* A client opens one ``Stream`` call and sends commands on it (generate, attach, detach, acknowledge, cancel). The
  engine answers with frames; one frame carries everything that happened to that connection's generations since the
  last one.
* ``generate`` and ``attach`` open a subscription under a number the client chooses, unique on its connection. Each
  subscription has a place of its own in the generation's events: a recorder and two tabs can share a connection.
* Every event of a generation has a contiguous ``seq`` from 1. ``Started`` is 1, ``Finished`` is the last; a generation
  that ends before it was admitted has ``Finished`` alone.
* Everything a client names is looked up under ``account``: another tenant's id is answered like an unknown one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PROTOCOL_VERSION = 1
SERVICE = "pagoda.inference.v1.Engine"

RequestClass = Literal["interactive", "api", "batch"]
FinishReason = Literal["stop", "length", "cancelled", "error"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all wire structs: frozen, and silent about defaults."""


# --- what a caller asks for -------------------------------------------------------------------------------------------


class ChatMessage(Message, frozen=True):
    """One turn. ``content`` is text, never markup: control tokens in it are encoded as plain text.

    token_ids: what an assistant's answer was generated as, known to the platform and never from its clients. A model's
    own tokens are often not the encoding of their text; where they say exactly ``content`` they stand for it, so that
    the blocks cached under them are found. Otherwise, and for other roles, they are ignored.
    """

    role: Literal["system", "user", "assistant"]
    content: str
    token_ids: tuple[int, ...] = ()


class Sampling(Message, frozen=True):
    """How tokens are chosen.

    ``max_tokens`` counts output tokens (``None``: up to the context's end). ``temperature`` 0 is greedy. ``top_p`` in
    (0, 1]. ``seed`` makes sampling repeatable. ``stop`` strings are not part of the output. ``ignore_eos`` runs to
    ``max_tokens`` (benchmarks).

    ``n`` answers to one prompt, each from a random stream of its own; they share the prompt's blocks. ``beam_width``
    above 0 searches with that many beams and returns the best ``n`` of them at the end, scored by the sum of log
    probabilities / length ** ``length_penalty``. ``early_stopping``: True ends the search when ``beam_width`` answers
    are complete; False when no open beam can beat the worst of them as it stands; "never" when none ever could.
    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    beam_width: int = 0
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False


class Generate(Message, frozen=True, tag="generate"):
    """Start a generation and subscribe to it.

    id: unguessable, chosen by the platform; a second Generate with the same id and account attaches instead.
    account: the tenant's account in the pool.
    scope: the isolation domain of cached blocks, derived by the platform and never by its clients
        (``tenant:<id>`` or ``user:<id>``). The engine keys the prefix cache with (account, scope).
    lineage: opaque id of the conversation ('' for none): blocks are purged when their last lineage is.
    messages: chat turns, templated by the engine; or ``prompt``: raw text; or ``prompt_token_ids``. Exactly one is set.
    continue_final: the last message is an assistant's unfinished one; the answer continues it.
    on_disconnect: ``keep`` (conversations: somebody will attach) or ``cancel`` (API calls: ends when nobody listens).
    subscription: the client's number for the events that follow.
    """

    id: str
    account: str
    scope: str
    messages: tuple[ChatMessage, ...] | None = None
    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    sampling: Sampling = Sampling()
    lineage: str = ""
    request_class: RequestClass = "interactive"
    on_disconnect: Literal["keep", "cancel"] = "keep"
    continue_final: bool = False
    subscription: int = 0


class Attach(Message, frozen=True, tag="attach"):
    """Subscribe to a generation's events after ``after_seq`` (0: from the start)."""

    id: str
    account: str
    after_seq: int = 0
    subscription: int = 0


class Detach(Message, frozen=True, tag="detach"):
    """End a subscription of this connection; the generation goes on. An unknown number is ignored."""

    subscription: int


class Acknowledge(Message, frozen=True, tag="acknowledge"):
    """Events up to ``seq`` are stored: the engine may forget them. Acknowledging the last forgets the generation."""

    id: str
    account: str
    seq: int


class Cancel(Message, frozen=True, tag="cancel"):
    """Stop a generation by the end of the steps already issued. Idempotent. ``Finished`` (cancelled) is the receipt."""

    id: str
    account: str


Command = Generate | Attach | Detach | Acknowledge | Cancel


# --- what the engine answers ------------------------------------------------------------------------------------------


class Error(Message, frozen=True):
    """What happened, which limit, what to do.

    Codes: invalid_request, context_length_exceeded, kv_limit_exceeded, queue_full, unknown_account, not_found,
    seq_forgotten, model_error, engine_stopping, unavailable.
    """

    code: str
    message: str
    details: dict[str, int | str] = {}


class Usage(Message, frozen=True):
    """Tokens of one generation. ``cached_tokens`` of the prompt came from the prefix cache.

    ``queued_s`` waiting for admission, ``prefill_s`` from admission to the first token, ``decode_s`` after it.
    ``blocks_freed`` is the receipt of a cancel: KV blocks that this generation held when it ended.
    """

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    preemptions: int = 0
    blocks_freed: int = 0


class Started(Message, frozen=True, tag="started"):
    """The prompt is admitted: its length and how much of it was cached."""

    id: str
    seq: int
    prompt_tokens: int
    cached_tokens: int


class Delta(Message, frozen=True, tag="delta"):
    """New text of answer ``index``. ``token_ids`` are the tokens behind it; text may be '' while a character is
    incomplete.

    ``finish_reason`` is set on the last delta of an answer where there are several. ``score``: of an answer found by
    beam search.
    """

    id: str
    seq: int
    text: str
    token_ids: tuple[int, ...] = ()
    index: int = 0
    finish_reason: FinishReason | None = None
    score: float | None = None


class Finished(Message, frozen=True, tag="finished"):
    """The last event of a generation."""

    id: str
    seq: int
    reason: FinishReason
    usage: Usage
    error: Error | None = None


class Refused(Message, frozen=True, tag="refused"):
    """A command was not carried out, or its subscription cannot go on: no further reply of that subscription follows.

    Not an event of the generation, hence no ``seq``.
    """

    id: str
    error: Error
    command: str = "generate"


Event = Started | Delta | Finished
Reply = Started | Delta | Finished | Refused


class Delivery(Message, frozen=True):
    """What one subscription gets, in order. Number 0 carries refusals of commands that have no subscription."""

    subscription: int
    replies: tuple[Reply, ...]


class Frame(Message, frozen=True):
    """Everything for one connection since its last frame."""

    deliveries: tuple[Delivery, ...]


# --- accounts, models, tokens, reports --------------------------------------------------------------------------------


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


class GetModels(Message, frozen=True):
    pass


class ModelInfo(Message, frozen=True):
    """What the engine serves. ``bytes_per_block`` is the KV of one block over all layers."""

    id: str
    context_length: int
    vocabulary_size: int
    dtype: str
    device: str
    block_size: int
    total_blocks: int
    bytes_per_block: int
    instance: str
    """Changes with every start of the engine: a different one means that all generations of before are lost."""
    version: str = ""


class Tokenize(Message, frozen=True):
    text: str | None = None
    messages: tuple[ChatMessage, ...] | None = None


class Tokens(Message, frozen=True):
    token_ids: tuple[int, ...] = ()
    error: Error | None = None


class Detokenize(Message, frozen=True):
    token_ids: tuple[int, ...]


class Text(Message, frozen=True):
    text: str = ""
    error: Error | None = None


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
    alerts: tuple[str, ...] = ()
    """What an operator should look at, one sentence each."""


# --- the service ------------------------------------------------------------------------------------------------------

METHODS: dict[str, tuple[Any, Any]] = {
    "Stream": (Command, Frame),
    "SetAccounts": (SetAccounts, AccountsSet),
    "Publish": (Publish, Published),
    "Purge": (Purge, Purged),
    "GetModels": (GetModels, ModelInfo),
    "Tokenize": (Tokenize, Tokens),
    "Detokenize": (Detokenize, Text),
    "Watch": (Watch, PoolReport),
}
"""Method name -> (request type, response type). Stream is bidirectional, Watch streams replies, the rest are unary."""

_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(kind) for pair in METHODS.values() for kind in pair}


def encode(message: Any) -> bytes:
    """One wire struct as msgpack."""
    return _encoder.encode(message)


def decoder(kind: Any) -> Any:
    """The deserialiser for ``kind`` (a type named in METHODS). Raises msgspec.ValidationError on anything else."""
    return _decoders[kind].decode


def method_path(name: str) -> str:
    """gRPC's path of a method: ``/pagoda.inference.v1.Engine/Stream``."""
    return f"/{SERVICE}/{name}"
