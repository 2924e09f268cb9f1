"""What the scheduler schedules: requests, and the sequences they own."""

from __future__ import annotations

from enum import Enum

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.prefix_index import Chain
from pagoda_inference.protocol import RequestClass

CLASS_RANK: dict[str, int] = {"interactive": 0, "api": 1, "batch": 2}


class RequestState(Enum):
    WAITING = "waiting"
    """Queued: new, or preempted and to be computed again."""
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """A prompt and the tokens generated after it.

    ``tokens`` is everything known (prompt, then output). ``computed``: how many of them have their KV in the pool,
    through ``table``; a sequence is decoding when only its newest token is not computed.
    """

    __slots__ = ("chain", "computed", "prompt_length", "request", "sampler", "table", "tokens")

    def __init__(self, request: Request, prompt: list[int], sampler: Sampler) -> None:
        self.request = request
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.sampler = sampler
        self.computed = 0
        self.table: BlockTable | None = None
        self.chain: Chain | None = None
        """Hashes of its full blocks: set when the request is queued, kept over preemptions."""

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def uncomputed(self) -> int:
        return len(self.tokens) - self.computed


class Request:
    """One generate call: the unit of admission and preemption. All its sequences come and go together."""

    __slots__ = (
        "account",
        "admitted_at",
        "arrival",
        "cached_tokens",
        "first_token_at",
        "id",
        "lineage",
        "max_tokens",
        "passed",
        "preemptions",
        "recompute_until",
        "request_class",
        "scope",
        "sequences",
        "since_admission",
        "state",
    )

    def __init__(
        self,
        *,
        id: str,
        account: str,
        scope: str,
        lineage: str,
        request_class: RequestClass,
        arrival: float,
        max_tokens: int,
    ) -> None:
        self.id = id
        self.account = account
        self.scope = scope
        self.lineage = lineage
        self.request_class = request_class
        self.arrival = arrival
        self.max_tokens = max_tokens
        self.sequences: list[Sequence] = []
        self.state = RequestState.WAITING
        self.cached_tokens = 0
        """Prompt tokens found in the prefix cache at the first admission."""
        self.preemptions = 0
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.since_admission = 0
        """Tokens produced since it was (re)admitted: the quantum that protects it from ping-pong."""
        self.passed = 0
        """How often a later request of its account was admitted before it."""
        self.recompute_until = 0
        """Tokens that were computed before the last preemption: computing them again is charged to nobody."""

    @classmethod
    def create(cls, *, prompt: list[int], sampler: Sampler, **fields: object) -> Request:
        """A request with one sequence. ``fields`` are the constructor's."""
        request = cls(**fields)  # type: ignore[arg-type]
        request.sequences.append(Sequence(request, prompt, sampler))
        return request

    @property
    def prefilling(self) -> bool:
        """Part of a prompt (or of what a preemption lost) is still to be computed."""
        return any(sequence.uncomputed > 1 or not sequence.computed for sequence in self.sequences)

    @property
    def order(self) -> tuple[int, float]:
        """Who goes first: class, then arrival. The "youngest", who gives way first, is the greatest."""
        return CLASS_RANK[self.request_class], self.arrival

    @property
    def is_batch(self) -> bool:
        return self.request_class == "batch"

    @property
    def held_blocks(self) -> int:
        """Entries of its block tables (a shared block counts in each)."""
        return sum(len(sequence.table) for sequence in self.sequences if sequence.table is not None)

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.account}, {self.state.value})"
