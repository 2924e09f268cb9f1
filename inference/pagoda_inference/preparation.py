"""From a ``Generate`` command to a generation the engine can run: checked, templated, tokenised.

Everything a caller can get wrong is found here, before the engine loop sees anything of it.
"""

from __future__ import annotations

import math
import time

from pagoda_inference.answers import AnswerRules
from pagoda_inference.beam_generation import BeamGeneration
from pagoda_inference.decoding.answer_state import AnswerState, Processing, ProcessingSampler
from pagoda_inference.decoding.beam_search import MAX_LENGTH_PENALTY, BeamSearch
from pagoda_inference.decoding.grammar_trial import GrammarRefused
from pagoda_inference.decoding.grammars import CompiledGrammar, Grammars
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.model.tokenizer import ChatTemplateError, ChatTokenizer
from pagoda_inference.protocol import ChatMessage, Error, Generate, Grammar, Sampling, Tokenize
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
MAX_BIASES = 1024
MAX_BIAS = 100.0
MAX_PENALTY = 2.0
"""Of presence and frequency, in either direction."""
REPETITION_PENALTIES = (0.01, 100.0)
MAX_LOGPROBS = 20
"""Most probable tokens that are told with each token of an answer."""
MAX_GRAMMAR_BYTES = 64 << 10

_SAMPLED_ALONE: dict[str, object] = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": (),
    "logprobs": None,
    "grammar": None,
}
"""Fields of Sampling that beam search does not know, and their values without effect."""


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
    if not 0 <= sampling.top_p <= 1:
        raise _invalid(f"top_p must be in [0, 1], not {sampling.top_p}")
    if len(sampling.stop) > MAX_STOPS:
        raise _invalid(f"at most {MAX_STOPS} stop strings are possible, not {len(sampling.stop)}")
    if not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in sampling.stop):
        raise _invalid(f"a stop string must have 1 to {MAX_STOP_CHARACTERS} characters")
    if sampling.top_k < 0:
        raise _invalid(f"top_k must be at least 0 (0: all tokens), not {sampling.top_k}")
    if not 0 <= sampling.min_p <= 1:
        raise _invalid(f"min_p must be in [0, 1], not {sampling.min_p}")
    if sampling.logprobs is not None and not 0 <= sampling.logprobs <= MAX_LOGPROBS:
        raise _invalid(f"logprobs must be in 0..{MAX_LOGPROBS}, not {sampling.logprobs}")
    check_penalties(sampling)
    check_answers(sampling)


def check_penalties(sampling: Sampling) -> None:
    """Penalties and biases, but for whether a bias's token exists. Raises InvalidCommand, naming the field."""
    for name in ("presence_penalty", "frequency_penalty"):
        if not abs(value := getattr(sampling, name)) <= MAX_PENALTY:  # NaN too
            raise _invalid(f"{name} must be a number in -{MAX_PENALTY}..{MAX_PENALTY}, not {value}")
    least, most = REPETITION_PENALTIES
    if not least <= sampling.repetition_penalty <= most:
        raise _invalid(f"repetition_penalty must be a number in {least}..{most}, not {sampling.repetition_penalty}")
    if len(sampling.logit_bias) > MAX_BIASES:
        raise _invalid(f"logit_bias may have at most {MAX_BIASES} tokens, not {len(sampling.logit_bias)}")
    for token, bias in sampling.logit_bias:
        if not abs(bias) <= MAX_BIAS:
            raise _invalid(f"logit_bias must be numbers in -{MAX_BIAS}..{MAX_BIAS}, not {bias} (token {token})")
    if len({token for token, _ in sampling.logit_bias}) < len(sampling.logit_bias):
        raise _invalid("logit_bias names a token twice")


def check_grammar(command: Generate) -> None:
    """All of a grammar but its meaning. Raises InvalidCommand."""
    sampling, grammar = command.sampling, command.sampling.grammar
    if grammar is None:
        return
    size = len(grammar.source.encode(errors="replace"))
    if size > MAX_GRAMMAR_BYTES:
        raise _invalid(f"a grammar may have at most {MAX_GRAMMAR_BYTES} bytes, not {size}")
    if (grammar.kind == "json_object") != (not grammar.source):
        raise _invalid("a grammar needs a source, except json_object, which has none")
    if sampling.ignore_eos:
        raise _invalid("ignore_eos is not possible with a grammar, which says where the answer ends")
    if command.continue_final:
        raise _invalid("continue_final is not possible with a grammar, which is one of whole answers")


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
        if others := [name for name, without in _SAMPLED_ALONE.items() if getattr(sampling, name) != without]:
            raise _invalid(f"{' and '.join(others)} cannot be had with beam_width")


def check_biased_tokens(sampling: Sampling, vocabulary_size: int) -> None:
    """Raises InvalidCommand for a bias of a token that does not exist."""
    for token, _ in sampling.logit_bias:
        if not 0 <= token < vocabulary_size:
            raise _invalid(f"logit_bias must name tokens in 0..{vocabulary_size - 1}, not {token}")


def prompt_characters(command: Generate | Tokenize) -> int:
    """Characters to tokenise: what decides whether it is done at once or in a thread."""
    if command.messages is not None:
        return sum(len(message.content) + len(message.token_ids) for message in command.messages)
    text = command.prompt if isinstance(command, Generate) else command.text
    return len(text or "")


def check_characters(command: Generate, tokenizer: ChatTokenizer, context_length: int) -> None:
    """Raises InvalidCommand for a text that no tokens of a context are long enough for: nobody tokenises it."""
    texts = [command.prompt or ""] if command.messages is None else [turn.content for turn in command.messages]
    characters = sum(map(len, texts))
    if characters > context_length * tokenizer.longest_token:
        raise InvalidCommand(
            "context_length_exceeded",
            f"the text has {characters} characters, more than the {context_length} tokens of the context can have: "
            "shorten it",
            characters=characters,
            context_length=context_length,
        )


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
    command: Generate,
    log: GenerationLog,
    tokenizer: ChatTokenizer,
    *,
    context_length: int,
    vocabulary_size: int,
    grammars: Grammars | None = None,
) -> Generation:
    """A generation ready for the engine. Raises InvalidCommand.

    ``max_tokens`` is cut to what the context leaves; a prompt that leaves no room for a token is refused. A grammar
    that ``grammars`` do not know is compiled; without them none can be followed.
    """
    sampling = command.sampling
    check_sampling(sampling)
    check_biased_tokens(sampling, vocabulary_size)
    check_grammar(command)
    check_characters(command, tokenizer, context_length)
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
        sampler=_sampler(sampling, prompt, grammars),
        samples=1 if sampling.beam_width else sampling.n,
        beam_width=sampling.beam_width,
    )
    eos_ids = frozenset() if sampling.ignore_eos else frozenset(tokenizer.eos_token_ids)
    rules = AnswerRules(tokenizer.detokenizer, sampling.stop, eos_ids, request.max_tokens)
    if sampling.beam_width:
        return BeamGeneration(log, request, rules, _beam_search(sampling, rules))
    return SampledGeneration(log, request, rules, sampling.n)


def _sampler(sampling: Sampling, prompt: list[int], grammars: Grammars | None) -> Sampler:
    top_p, top_k = (sampling.top_p, sampling.top_k) if sampling.top_p else (1.0, 1)
    sampler = Sampler.create(sampling.temperature, top_p, sampling.seed, top_k=top_k, min_p=sampling.min_p)
    processing = Processing(
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        logprobs=sampling.logprobs,
        grammar=None if sampling.grammar is None else _compiled(sampling.grammar, grammars),
    )
    return ProcessingSampler.of(sampler, AnswerState(processing, prompt)) if processing.needed else sampler


def _compiled(grammar: Grammar, grammars: Grammars | None) -> CompiledGrammar:
    if grammars is None:
        raise _invalid("grammars cannot be followed here")
    try:
        return grammars.compiled(grammar)
    except GrammarRefused as refused:
        raise _invalid(f"the grammar ({grammar.kind}) is refused: {refused}") from None


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
