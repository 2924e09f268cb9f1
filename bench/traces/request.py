"""The one form in which every trace is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request of a trace.

    at_s: when it arrives, in seconds from the first one of the trace; 0 for all where a trace has lengths alone.
    prompt_tokens, output_tokens: of the whole prompt, earlier turns included, and of the answer.
    client: who asks, the tenant of a replay; "" where the trace does not say.
    conversation, turn: the conversation that it belongs to and its number in it, from 0. A prompt begins with the
        prompt of the turn before, unless ``blocks`` say otherwise.
    blocks: ids of the prompt's blocks of ``block_tokens`` tokens, the last of which may be partial. Equal ids are
        equal content after an equal beginning, as the hashes of a prefix cache are (Mooncake, FAST'25). Empty where the
        trace does not know.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    client: str = ""
    conversation: str = ""
    turn: int = 0
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
