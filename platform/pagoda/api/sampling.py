"""From the fields of a request to the engine's ``Sampling``."""

from __future__ import annotations

from pagoda.api.errors import ApiError
from pagoda.api.requests.fields import SamplingFields
from pagoda_inference.protocol import Grammar, Sampling

DEFAULT_TEMPERATURE = 1.0
SEEDS = 2**63


def sampling_of(
    request: SamplingFields,
    max_tokens: int | None,
    *,
    n: int | None = None,
    logprobs: int | None = None,
    grammar: Grammar | None = None,
    vocabulary_size: int,
) -> Sampling:
    """What the engine is asked for. n, logprobs, grammar: in the engine's terms. Raises ApiError."""
    beams = request.beam_width or 0
    answers = n if n is not None else request.n or 1
    temperature = request.temperature
    if beams:
        if temperature:
            raise ApiError("invalid_value", "Beam search needs temperature 0, or none.", "temperature")
        if answers > beams:
            raise ApiError("invalid_value", f"n must not be above beam_width ({beams}).", "n")
        temperature = 0.0
    return Sampling(
        max_tokens=max_tokens,
        temperature=DEFAULT_TEMPERATURE if temperature is None else temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=None if request.seed is None else request.seed % SEEDS,
        stop=_stops(request.stop),
        ignore_eos=bool(request.ignore_eos),
        n=answers,
        beam_width=beams,
        length_penalty=1.0 if request.length_penalty is None else request.length_penalty,
        early_stopping=request.early_stopping or False,
        top_k=max(request.top_k or 0, 0),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        logit_bias=_biases(request.logit_bias, vocabulary_size),
        logprobs=logprobs,
        grammar=grammar,
    )


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _biases(biases: dict[str, float] | None, vocabulary_size: int) -> tuple[tuple[int, float], ...]:
    pairs = []
    for name, bias in (biases or {}).items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocabulary_size):
            raise ApiError("invalid_value", f"The names must be token ids: 0..{vocabulary_size - 1}.", "logit_bias")
        pairs.append((int(name), bias))
    if len({token for token, _ in pairs}) < len(pairs):
        raise ApiError("invalid_value", "A token id is there twice.", "logit_bias")
    return tuple(pairs)
