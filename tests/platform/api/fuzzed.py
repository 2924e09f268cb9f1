"""Bodies that no client means: usual requests with something wrong in them, drawn from a seed."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass
from typing import Any

WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}},
}


def usual(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """An address and a short request that it answers."""
    few = rng.randint(1, 4)
    question = {"role": "user", "content": rng.choice(("Hello", "안녕하세요", "x" * 300, "\u0000\uffff🙂"))}
    chat = {"model": "echo", "messages": [question], "max_tokens": few, "stream": rng.random() < 0.3}
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/chat/completions", chat),
        ("/chat/completions", chat | {"n": rng.randint(1, 4), "temperature": 1.5, "logprobs": True}),
        ("/chat/completions", chat | {"tools": [WEATHER], "tool_choice": "required"}),
        ("/chat/completions", chat | {"response_format": {"type": "json_object"}}),
        ("/completions", {"model": "echo", "prompt": ["one", "two"], "max_tokens": few, "best_of": 2}),
        ("/completions", {"model": "echo", "prompt": [[5, 6], [7]], "max_tokens": few, "echo": True}),
        ("/responses", {"model": "echo", "input": "Hello", "max_output_tokens": few}),
        ("/tokenize", {"model": "echo", "messages": [question]}),
        ("/detokenize", {"model": "echo", "tokens": [65, 66]}),
        ("/embeddings", {"model": "echo", "input": "x"}),
    )
    return rng.choice(requests)


FIELDS = (
    *(
        "model",
        "messages",
        "prompt",
        "input",
        "tokens",
        "n",
        "best_of",
        "stop",
        "seed",
        "temperature",
        "top_p",
        "top_k",
    ),
    *("min_p", "logit_bias", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty", "stream", "tools"),
    *("repetition_penalty", "ignore_eos", "beam_width", "length_penalty", "early_stopping", "response_format", "echo"),
    *("tool_choice", "parallel_tool_calls", "stream_options", "metadata", "user", "text", "include", "instructions"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "modalities", "audio", "suffix", "no such field", ""),
)


def deep(levels: int, inner: Any = 1) -> Any:
    """A value inside so many lists and objects."""
    for level in range(levels):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


def schema(levels: int) -> dict[str, Any]:
    """A JSON schema of objects in objects."""
    inner: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


def value(rng: random.Random) -> Any:
    """Something that hardly any field takes."""
    kinds = (
        lambda: rng.choice((10**9, -1, 0, 2**63, -(2**63) - 1, 10**40, 1.5, -0.0, 1e308, 5e-324)),
        lambda: rng.choice((float("nan"), float("inf"), float("-inf"))),
        lambda: rng.choice((True, False, None, "", "\ud83d", "\udc00x", "\u0000", "5", "null", "🙂" * 600)),
        lambda: rng.choice(([], {}, [None], [[]], {"": {}}, {"type": "text"}, {"type": "json_schema"}, [1, "a", None])),
        lambda: [f"stop {number}" for number in range(rng.choice((5, 1000, 100_000)))],
        lambda: {str(number): rng.choice((1, 101, "x")) for number in range(rng.choice((1, 300, 2000)))},
        lambda: deep(rng.choice((3, 60, 900))),
        lambda: {"type": "json_schema", "json_schema": {"name": "x", "schema": schema(rng.choice((2, 30, 300)))}},
        lambda: {"type": "json_schema", "json_schema": {"name": "x", "schema": {"pattern": "(a*)*" * 50}}},
        lambda: [
            WEATHER | {"function": {"name": rng.choice(("f", "ü", "x" * 65)), "parameters": schema(rng.randint(0, 50))}}
        ],
        lambda: [{"role": rng.choice(("user", "tool", "system", 5)), "content": deep(rng.randint(0, 4), "x")}],
        lambda: rng.choice(("x" * 5000, "x" * 700_000, [0, 255, 256, 2**31], [[]], [["a"]])),
    )
    return rng.choice(kinds)()


def broken(rng: random.Random, data: bytes) -> bytes:
    """Bytes that are hardly JSON any more."""
    place = rng.randrange(len(data))
    ways = (
        lambda: data[:place],
        lambda: data[:place] + bytes([rng.randrange(256)]) + data[place:],
        lambda: data[:place] + b"\\ud800" + data[place:],
        lambda: data.replace(b"{", b'{"model": "echo", ', 1),
        lambda: b"[" * rng.choice((100, 100_000)) + data,
        lambda: data.replace(b'"model"', b'"a":' + b"9" * rng.choice((300, 6000)) + b',"model"', 1),
        lambda: data.decode(errors="replace").encode("utf-16"),
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data + data,
        lambda: rng.randbytes(rng.randrange(200)),
    )
    return rng.choice(ways)()


@dataclass(frozen=True)
class Fuzzed:
    """A request as it is sent."""

    path: str
    body: bytes


def draw(rng: random.Random) -> Fuzzed:
    """One request: a few fields replaced or added, some of those inside others, and sometimes its bytes broken."""
    path, body = usual(rng)
    body = copy.deepcopy(body)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        place: Any = body
        while (inner := _children(place)) and rng.random() < 0.25:
            place = rng.choice(inner)
        if isinstance(place, list):
            place.append(value(rng))
        elif rng.random() < 0.9:
            place[rng.choice((*FIELDS, *place))] = value(rng)
        else:
            place.pop(rng.choice((*FIELDS, *place)), None)
    data = json.dumps(body, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")
    return Fuzzed(path, broken(rng, data) if rng.random() < 0.15 else data)


def _children(place: Any) -> list[Any]:
    inner = place.values() if isinstance(place, dict) else place if isinstance(place, list) else ()
    return [each for each in inner if isinstance(each, dict | list)]
