"""What the scheduler schedules: requests, and the sequences they own."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.prefix_index import Chain
from pagoda_inference.protocol import RequestClass
from pagoda_inference.scheduling.match import Match

if TYPE_CHECKING:
    from pagoda_inference.kv.tiers.tiers import Stowed
    from pagoda_inference.scheduling.step import ScheduledChunk
    from pagoda_inference.speculation.drafting import Drafting

CLASS_RANK: dict[str, int] = {"interactive": 0, "api": 1, "batch": 2}


class RequestState(Enum):
    WAITING = "waiting"
    """Queued: new, or preempted and to be computed again or brought back."""
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """A prompt and the tokens generated after it.

    ``tokens`` is everything known (prompt, then output). ``computed``: how many of them have their KV in the pool,
    through ``table``; a sequence is decoding when only its newest token is not computed. ``index``: which of the
    request's answers it is.
    """

    __slots__ = ("chain", "computed", "drafting", "index", "prompt_length", "request", "sampler", "table", "tokens")

    def __init__(self, request: Request, prompt: list[int], sampler: Sampler, index: int = 0) -> None:
        self.request = request
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.sampler = sampler
        self.index = index
        self.computed = 0
        self.table: BlockTable | None = None
        self.chain: Chain | None = None
        """Hashes of its full blocks: set when the request is queued, kept over preemptions."""
        self.drafting: Drafting | None = None
        """What is known of how well its next tokens can be guessed."""

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def uncomputed(self) -> int:
        return len(self.tokens) - self.computed

    def forked(self, index: int, sampler: Sampler) -> Sequence:
        """The same tokens, to go another way from here. The caller gives it its table."""
        other = Sequence(self.request, self.tokens, sampler, index)
        other.prompt_length = self.prompt_length
        other.computed = self.computed
        return other


@dataclass(slots=True)
class Swap:
    """A preempted request on the host: which of the stowed blocks each sequence had, and how far it was computed.

    ``stowed`` is None until the copy has ended.
    """

    places: list[list[int]]
    computed: list[int]
    blocks: int
    stowed: Stowed | None = None


class Request:
    """One generate call: the unit of admission and preemption. All its sequences come and go together.

    It begins with one sequence. Where several answers are wanted they fork at the prompt's end; beams fork and end at
    every step.
    """

    __slots__ = (
        "account",
        "admitted_at",
        "admitted_with",
        "arrival",
        "beam_width",
        "cached_tokens",
        "candidates",
        "decoding",
        "first_token_at",
        "forgotten",
        "fork_at",
        "free_until",
        "id",
        "is_batch",
        "ledger",
        "lineage",
        "loading",
        "match",
        "max_tokens",
        "order",
        "overtaken",
        "passed",
        "plan_after",
        "preemptions",
        "publishes",
        "recompute_until",
        "request_class",
        "rows",
        "samplers",
        "scope",
        "sequences",
        "state",
        "steady",
        "swap",
        "tried",
    )

    ledger: Ledger
    """Set when it is queued."""

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
        self.order = (CLASS_RANK[request_class], arrival)
        """Who goes first: class, then arrival. The "youngest", who gives way first, is the greatest."""
        self.is_batch = request_class == "batch"
        self.publishes = False
        """It computes a published prefix and asks for no token."""
        self.rows = 0
        """Sequences that it was counted with when it was admitted."""
        self.sequences: list[Sequence] = []
        self.samplers: SequenceOf[Sampler] = ()
        """One per answer."""
        self.beam_width = 0
        self.candidates = 0
        """Next tokens that beam search wants to choose from, for each beam."""
        self.state = RequestState.WAITING
        self.decoding = False
        """Running, and all that is known is computed but each sequence's newest token."""
        self.forgotten = False
        """Its conversation was deleted while it lived: what it computes is not to be found by anybody."""
        self.loading = False
        """Running, and blocks are on their way from a tier below."""
        self.fork_at = 0
        """Tokens that the sequences share: the first computes them, then the others fork from it. 0: nothing to do."""
        self.swap: Swap | None = None
        self.cached_tokens = 0
        """Prompt tokens found in the prefix cache at the first admission."""
        self.preemptions = 0
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.admitted_with = 0
        """Tokens that its longest answer had when it was (re)admitted."""
        self.overtaken = 0
        """How often requests of other accounts came while it waited for blocks with less than they had."""
        self.tried = False
        """Admission looked at it once at least."""
        self.passed = 0
        """How often a later request of its account was admitted before it."""
        self.recompute_until = 0
        """Tokens that were computed before the last preemption: computing them again is no new input."""
        self.free_until = 0
        """Of them, those lost for another tenant: computing them again is charged to nobody."""
        self.match: Match | None = None
        """What admission found in the prefix index last."""
        self.steady: ScheduledChunk | None = None
        """The chunk of its only sequence, while it decodes and nothing has to be looked at but its block's end."""
        self.plan_after = 0
        """Step before which no preemption is planned for it again."""

    @classmethod
    def create(
        cls, *, prompt: list[int], sampler: Sampler, samples: int = 1, beam_width: int = 0, **fields: object
    ) -> Request:
        """A request with one prompt. ``fields`` are the constructor's."""
        request = cls(**fields)  # type: ignore[arg-type]
        request.samplers = [sampler, *(sampler.stream(index) for index in range(1, samples))]
        request.beam_width = beam_width
        request.sequences.append(Sequence(request, prompt, sampler))
        return request

    @property
    def prompt_length(self) -> int:
        return self.sequences[0].prompt_length

    @property
    def begun(self) -> bool:
        """It has produced tokens."""
        return self.first_token_at is not None

    @property
    def longest(self) -> int:
        """Tokens of its longest answer."""
        return max(sequence.output_length for sequence in self.sequences)

    @property
    def since_admission(self) -> int:
        """Tokens produced since it was (re)admitted: the quantum that protects it from ping-pong."""
        return self.longest - self.admitted_with

    @property
    def width(self) -> int:
        """Sequences that it needs a block for each: those that it has, or will have when its prompt is done."""
        return len(self.sequences) if self.begun else max(len(self.samplers), self.beam_width, 1)

    @property
    def next_key(self) -> bytes | None:
        """Of the block after what admission found of its prompt last; None where there is none to be found."""
        chain, match = self.sequences[0].chain, self.match
        if chain is None or match is None or self.forgotten or len(match.run) >= len(chain.keys):
            return None
        return chain.keys[len(match.run)]

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.account}, {self.state.value})"
