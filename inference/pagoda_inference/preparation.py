"""From a ``Generate`` command to a generation the engine can run: checked, templated, tokenised.

Everything a caller can get wrong is found here, before the engine loop sees anything of it.
"""

from __future__ import annotations

import math
import time

from pagoda_inference.answers import AnswerRules
from pagoda_inference.beam_generation import BeamGeneration
from pagoda_inference.decoding.beam_search import MAX_LENGTH_PENALTY, BeamSearch
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.model.tokenizer import ChatTemplateError, ChatTokenizer
from pagoda_inference.protocol import ChatMessage, Error, Generate, Sampling, Tokenize
from pagoda_inference.sampled_generation import SampledGeneration
from pagoda_inference.scheduling.sequence import Request

MAX_NAME = 256
"""Characters of an id, account, scope or lineage."""
MAX_ANSWERS = 64
"""Answers to one prompt. Their tokens are not bounded together: each may have ``max_tokens``. All of them run at once,
so that what they need for that, with the prompt shared, has to fit into the account like any other request."""
MAX_BEAM_WIDTH = 16
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024


class InvalidCommand(Exception):
    """The command cannot be carried out; ``error`` is for the caller."""

    def __init__(self, code: str, message: str, **details: int | str) -> None:
        super().__init__(message)
        self.error = Error(code, message, details)


def check_names(command: Generate) -> None:
    """What must hold before a generation has a log at all. Raises InvalidCommand."""
    for name in ("id", "account", "scope"):
        if not getattr(command, name):
            raise _invalid(f"{name} must not be empty")
    for name in ("id", "account", "scope", "lineage"):
        if len(getattr(command, name)) > MAX_NAME:
            raise _invalid(f"{name} must not be longer than {MAX_NAME} characters")


def check_sampling(sampling: Sampling) -> None:
    """Raises InvalidCommand outside the ranges that Sampling documents."""
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise _invalid(f"max_tokens must be at least 1, not {sampling.max_tokens}")
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise _invalid(f"temperature must be a number >= 0, not {sampling.temperature}")
    if not 0 < sampling.top_p <= 1:
        raise _invalid(f"top_p must be in (0, 1], not {sampling.top_p}")
    if len(sampling.stop) > MAX_STOPS:
        raise _invalid(f"at most {MAX_STOPS} stop strings are possible, not {len(sampling.stop)}")
    if not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in sampling.stop):
        raise _invalid(f"a stop string must have 1 to {MAX_STOP_CHARACTERS} characters")
    check_answers(sampling)


def check_answers(sampling: Sampling) -> None:
    """How many answers there are and how they are searched for. Raises InvalidCommand, naming the field."""
    if not 1 <= sampling.n <= MAX_ANSWERS:
        raise _invalid(f"n must be in 1..{MAX_ANSWERS}, not {sampling.n}")
    if not 0 <= sampling.beam_width <= MAX_BEAM_WIDTH:
        raise _invalid(f"beam_width must be in 0..{MAX_BEAM_WIDTH} (0: no beam search), not {sampling.beam_width}")
    if not abs(sampling.length_penalty) <= MAX_LENGTH_PENALTY:  # NaN too
        bounds = f"-{MAX_LENGTH_PENALTY}..{MAX_LENGTH_PENALTY}"
        raise _invalid(f"length_penalty must be a number in {bounds}, not {sampling.length_penalty}")
    if sampling.beam_width:
        if sampling.n > sampling.beam_width:
            raise _invalid(f"n must not be above beam_width ({sampling.beam_width}), not {sampling.n}")
        if sampling.temperature != 0:
            raise _invalid(f"temperature must be 0 with beam_width, not {sampling.temperature}")


def prompt_characters(command: Generate | Tokenize) -> int:
    """Characters to tokenise: what decides whether it is done at once or in a thread."""
    if command.messages is not None:
        return sum(len(message.content) + len(message.token_ids) for message in command.messages)
    text = command.prompt if isinstance(command, Generate) else command.text
    return len(text or "")


def encode_messages(
    messages: tuple[ChatMessage, ...], tokenizer: ChatTokenizer, *, continue_final: bool = False
) -> list[int]:
    """Raises InvalidCommand when the messages make no conversation."""
    try:
        return tokenizer.encode_chat(messages, continue_final)
    except ChatTemplateError as error:
        raise _invalid(str(error)) from None


def encode_prompt(command: Generate, tokenizer: ChatTokenizer, vocabulary_size: int) -> list[int]:
    """The prompt's tokens. Raises InvalidCommand."""
    given = [part for part in (command.messages, command.prompt, command.prompt_token_ids) if part is not None]
    if len(given) != 1:
        raise _invalid("exactly one of messages, prompt and prompt_token_ids must be given")
    if command.continue_final and command.messages is None:
        raise _invalid("continue_final needs messages")
    if command.messages is not None:
        prompt = encode_messages(command.messages, tokenizer, continue_final=command.continue_final)
    elif command.prompt is not None:
        prompt = tokenizer.encode(command.prompt)
    else:
        prompt = list(command.prompt_token_ids or ())
        if not all(0 <= token < vocabulary_size for token in prompt):
            raise _invalid(f"prompt_token_ids must be in 0..{vocabulary_size - 1}")
    if not prompt:
        raise _invalid("the prompt has no tokens")
    return prompt


def prepare(
    command: Generate, log: GenerationLog, tokenizer: ChatTokenizer, *, context_length: int, vocabulary_size: int
) -> Generation:
    """A generation ready for the engine. Raises InvalidCommand.

    ``max_tokens`` is cut to what the context leaves; a prompt that leaves no room for a token is refused.
    """
    sampling = command.sampling
    check_sampling(sampling)
    arrival = time.monotonic()
    prompt = encode_prompt(command, tokenizer, vocabulary_size)
    room = context_length - len(prompt)
    if room < 1:
        raise InvalidCommand(
            "context_length_exceeded",
            f"the prompt has {len(prompt)} tokens and the context {context_length}: shorten the prompt",
            prompt_tokens=len(prompt),
            context_length=context_length,
        )
    request = Request.create(
        id=command.id,
        account=command.account,
        scope=command.scope,
        lineage=command.lineage,
        request_class=command.request_class,
        arrival=arrival,
        prompt=prompt,
        max_tokens=room if sampling.max_tokens is None else min(sampling.max_tokens, room),
        sampler=Sampler.create(sampling.temperature, sampling.top_p, sampling.seed),
        samples=1 if sampling.beam_width else sampling.n,
        beam_width=sampling.beam_width,
    )
    eos_ids = frozenset() if sampling.ignore_eos else frozenset(tokenizer.eos_token_ids)
    rules = AnswerRules(tokenizer.detokenizer, sampling.stop, eos_ids, request.max_tokens)
    if sampling.beam_width:
        return BeamGeneration(log, request, rules, _beam_search(sampling, rules))
    return SampledGeneration(log, request, rules, sampling.n)


def _beam_search(sampling: Sampling, rules: AnswerRules) -> BeamSearch:
    return BeamSearch(
        sampling.beam_width,
        sampling.n,
        sampling.length_penalty,
        sampling.early_stopping,
        rules.eos_ids,
        max_tokens=rules.max_tokens,
    )


def _invalid(message: str) -> InvalidCommand:
    return InvalidCommand("invalid_request", message)
