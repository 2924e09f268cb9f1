"""Generations: what a caller asks for, and the events it is answered with.

* A client opens one ``Stream`` call and sends commands on it (generate, attach, detach, acknowledge, cancel). The
  engine answers with frames; one frame carries everything that happened to that connection's generations since the
  last one.
* ``generate`` and ``attach`` open a subscription under a number the client chooses, unique on its connection. Each
  subscription has a place of its own in the generation's events: a recorder and two tabs can share a connection.
* Every event of a generation has a contiguous ``seq`` from 1. ``Started`` is 1, ``Finished`` is the last; a generation
  that ends before it was admitted has ``Finished`` alone.
"""

from __future__ import annotations

from typing import Literal

from pagoda_inference.protocol.message import Error, Message

RequestClass = Literal["interactive", "api", "batch"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
LEAST_LOGPROB = -9999.0
"""What stands for anything less probable, as in OpenAI's interface: -inf is no number of JSON."""


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


class Grammar(Message, frozen=True):
    """What the text of an answer must be: it is then a JSON document, or matches, and the answer ends where that does.

    ``json_object``: any JSON object; ``source`` is ''. ``json_schema``: a document that is valid under the JSON schema
    ``source``. ``regex``: a text that matches ``source`` whole, in the syntax of Rust's regex. ``lark``: a context-free
    grammar in llguidance's dialect of Lark. A schema or grammar that cannot be followed is refused with the reason.
    """

    kind: Literal["json_object", "json_schema", "regex", "lark"]
    source: str = ""


class Sampling(Message, frozen=True):
    """How tokens are chosen.

    ``max_tokens`` counts output tokens (``None``: up to the context's end). ``temperature`` 0 is greedy. ``top_p`` in
    [0, 1]; 0: only the most probable token. ``top_k``: only the so many most probable tokens (0: all). ``min_p`` in [0,
    1]: only tokens at least so many times as probable as the most probable one. ``seed`` makes sampling repeatable.
    ``stop`` strings are not part of the output. ``ignore_eos`` runs to ``max_tokens`` (benchmarks).

    Before temperature a token's logit is divided by ``repetition_penalty`` (multiplied where it is negative) if the
    token occurs in prompt or answer; then lowered by ``presence_penalty`` if it occurs in the answer, and by
    ``frequency_penalty`` for each time it does; then raised by its ``logit_bias`` (token id, bias). What ``grammar``
    does not allow is not chosen.

    ``logprobs``: with each token its natural log probability and those of so many most probable tokens (0 to 20; None:
    nothing). They are the model's own, at temperature 1, before penalties, biases and grammar.

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
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    grammar: Grammar | None = None


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


class TokenLogprobs(Message, frozen=True):
    """Natural log probabilities of a token that was chosen, and of the most probable ones in its place: ``top``, (token
    id, log probability), the most probable first, ties by id. None is below LEAST_LOGPROB.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Delta(Message, frozen=True, tag="delta"):
    """New text of answer ``index``. ``token_ids`` are the tokens behind it; text may be '' while a character is
    incomplete. ``logprobs``: of each of them, where they were asked for.

    ``finish_reason`` is set on the last delta of an answer where there are several. ``score``: of an answer found by
    beam search; where ``logprobs`` were asked for, the sum of the log probabilities of an answer's tokens, on the delta
    of its last token.
    """

    id: str
    seq: int
    text: str
    token_ids: tuple[int, ...] = ()
    index: int = 0
    finish_reason: FinishReason | None = None
    score: float | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()


class Finished(Message, frozen=True, tag="finished"):
    """The last event of a generation.

    ``limit_reached``, beside the reason ``length``: kv_limit_exceeded, where the account's limit cut the answer short
    and not ``max_tokens`` or the context. A continuation would need still more blocks.
    """

    id: str
    seq: int
    reason: FinishReason
    usage: Usage
    error: Error | None = None
    limit_reached: Error | None = None


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
