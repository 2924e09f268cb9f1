"""Compiling a grammar where it can do no harm: in a process that the operating system ends when it takes too long.

``python -m pagoda_inference.decoding.grammar_trial`` reads a grammar a line and answers each with a line: why it is
refused, '' where it is not.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from pagoda_inference.decoding.grammar_error import grammar_error

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MOST_CPU_S = 1.0
"""Processor time of compiling one grammar."""
MOST_BYTES = 2 << 30
"""Address space of the process."""
MOST_REASON = 500
"""Characters of a reason."""
UNMATCHED = "no text can match it, or too many can"
MOST_ROW_ITEMS = 2_000
"""Places of a grammar at which an answer can be at one time. Each costs as much as all the others, so that the time is
that of the square: on a Xeon core with other work, a token took up to 14 ms with 2,000 and 78 ms with 4,800."""
MOST_OPTIONAL = 490
"""Properties of one object that may be absent: any of those may come next, and each is four places or so."""
_WALK_BYTES = 200
_WALK_S = 0.1
"""Of processor time."""
_STACK_BYTES = 4 << 20
"""Half of a thread's elsewhere: what does not overflow this stack does not overflow that of who compiles it again."""

_WHITESPACE = r" |\n {0,16}"
"""Between a JSON document's parts: a space, or a line's end and an indentation. A small model that may write as much as
it likes writes nothing else."""


class GrammarRefused(Exception):
    """A grammar cannot be followed; says why, for whoever wrote it."""

    def __init__(self, reason: str) -> None:
        first = reason.strip().split("<state>")[0].strip()
        super().__init__(first[:MOST_REASON])


class GrammarTrial:
    """The process, started when it is needed and again after it was ended. From any thread, one grammar at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def compile(self, kind: str, source: str) -> None:
        """Raises GrammarRefused for a grammar that is wrong, or takes more time, memory or stack than there is."""
        with self._lock:
            if self._closed:
                raise GrammarRefused("the engine is stopping")
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            answer = _asked(self._process, json.dumps([kind, source]))
            if answer is None:
                took_long = _end(self._process) == -signal.SIGVTALRM
                self._process = None
                what = f"takes more than {MOST_CPU_S:g} s" if took_long else "needs too much memory or recursion"
                raise GrammarRefused(f"compiling it {what}: make it simpler")
        if reason := json.loads(answer):
            raise GrammarRefused(reason)

    def close(self) -> None:
        """End the process, now, whatever it does."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()


def _end(process: subprocess.Popen[str]) -> int:
    """Its exit status, once it has ended."""
    with process:
        process.kill()
    return process.returncode


def _asked(process: subprocess.Popen[str], question: str) -> str | None:
    """The answer's line; None where the process is gone."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(question + "\n")
        process.stdin.flush()
    except OSError:
        return None
    return process.stdout.readline() or None


def definition(kind: str, source: str) -> str:
    """A grammar as llguidance takes it. Raises GrammarRefused."""
    from llguidance import LLMatcher

    try:
        if kind == "regex":
            return LLMatcher.grammar_from_regex(source)
        if kind == "lark":
            return LLMatcher.grammar_from_lark(source)
        schema = source if kind == "json_schema" else '{"type": "object"}'
        return LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": _WHITESPACE})
    except ValueError as error:
        raise GrammarRefused(str(error)) from None


def limits() -> LLParserLimits:
    """What compiling and each step may take: about 20 ms, and about 10 ms."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_grammar_size=200_000,
        step_lexer_fuel=100_000,
        step_max_items=20_000,
        max_lexer_states=50_000,
        max_items_in_row=MOST_ROW_ITEMS,
        verbose_errors=False,
    )


def main() -> None:
    """Ends with its input, by SIGVTALRM after MOST_CPU_S of one grammar, or by what that grammar does to it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system knows this limit
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent to all processes of a terminal; the end of the input ends it
    threading.stack_size(_STACK_BYTES)
    server = threading.Thread(target=_serve)
    server.start()
    server.join()


def _serve() -> None:
    tokenizer = byte_tokenizer(1)
    for line in sys.stdin:
        kind, source = json.loads(line)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
        reason = _try(tokenizer, kind, source)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(json.dumps(reason), flush=True)


def _try(tokenizer: LLTokenizer, kind: str, source: str) -> str:
    """Why a grammar is refused; and which of the alternatives of a schema within lark's is at fault, by its number."""
    reason = _tried(tokenizer, kind, source)
    if not reason or kind != "lark":
        return reason
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    for schema in _schemas(kind, source):
        definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
        alternatives = schema.get("anyOf") or [schema]
        for number, alternative in enumerate(alternatives):
            if own := _tried(tokenizer, "json_schema", json.dumps(alternative | definitions)):
                return f"alternative {number}: {own}"
    return reason


def _tried(tokenizer: LLTokenizer, kind: str, source: str) -> str:
    from llguidance import LLMatcher

    try:
        matcher = LLMatcher(tokenizer, definition(kind, source), log_level=0, limits=limits())
    except GrammarRefused as refused:
        return str(refused)
    if matcher.is_error():
        return str(GrammarRefused(matcher.get_error()))
    most = max(map(_most_optional, _schemas(kind, source)), default=0)
    if most > MOST_OPTIONAL:
        return (
            f"an object has {most} properties that are not required, of {MOST_OPTIONAL} at most: "
            "require more of them, or divide it into several objects"
        )
    matcher.compute_bitmask()
    return UNMATCHED if matcher.is_error() else _walk(matcher)


def _walk(matcher: LLMatcher) -> str:
    """Why an answer that opens whatever it may open cannot be followed; '' where it can, as far as this goes."""
    end = time.process_time() + _WALK_S
    for _ in range(_WALK_BYTES):
        if matcher.is_stopped() or time.process_time() > end:
            break
        allowed = matcher.compute_bitmask()
        if not matcher.is_error():
            byte = next((each for each in _BYTES if allowed[each >> 3] >> (each & 7) & 1), None)
            if byte is None:
                break
            matcher.consume_token(byte)
        if matcher.is_error():
            error = grammar_error(matcher)
            return f"{error.reason}: make it simpler" if error.too_complex else UNMATCHED
    return ""


_OPENING = b'{["'
_BYTES = (*_OPENING, *(byte for byte in (*range(ord("!"), 128), *range(128, 256), ord(" ")) if byte not in _OPENING))
"""In the order in which a walk prefers them."""


def _schemas(kind: str, source: str) -> list[Any]:
    """The JSON schemas of a grammar: itself, or those that a grammar of lark's has, one a line."""
    if kind == "json_schema":
        return [json.loads(source)]
    return [json.loads(found) for found in _EMBEDDED.findall(source)] if kind == "lark" else []


_EMBEDDED = re.compile(r"^\w+: %json (\{.*\})$", re.MULTILINE)
_NO_SCHEMAS = frozenset({"const", "enum", "default", "examples"})


def _most_optional(schema: Any) -> int:
    """Properties that are not required, of the object in it that has most of them."""
    most, rest = 0, [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, list):
            rest += part
        elif isinstance(part, dict):
            properties, required = part.get("properties"), part.get("required")
            if isinstance(properties, dict):
                named = {each for each in required if isinstance(each, str)} if isinstance(required, list) else set()
                most = max(most, len(properties.keys() - named))
            rest += [each for name, each in part.items() if name not in _NO_SCHEMAS]
    return most


def byte_tokenizer(special: int) -> LLTokenizer:
    """Of the 256 bytes and so many tokens behind them that are no text, the first of which ends an answer."""
    from llguidance import LLTokenizer, TokenizerWrapper

    class Bytes:
        eos_token_id = 256
        bos_token_id = None
        tokens = [*(bytes([byte]) for byte in range(256)), *(b"<%d>" % number for number in range(special))]
        special_token_ids = tuple(range(256, 256 + special))

        def __call__(self, text: bytes) -> list[int]:
            return list(text)

    return LLTokenizer(TokenizerWrapper(Bytes()))


if __name__ == "__main__":
    main()
