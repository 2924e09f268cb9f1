"""Grammars as callers give them, compiled by llguidance once each and kept for the next answer that follows them.

A compiler of somebody else's grammars can be made to work for minutes, or to overflow its stack. So each is compiled in
a process of its own first (``grammar_trial``), and here only after that has gone well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from pagoda_inference.decoding.grammar_trial import UNMATCHED, GrammarRefused, GrammarTrial, definition, limits
from pagoda_inference.decoding.guide import Guide, allowed_tokens
from pagoda_inference.protocol import Grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_KNOWN = 64
"""Grammars that are compiled or known to be wrong; the least recently used goes first."""


class CompiledGrammar:
    """Ready for any number of answers. From any thread."""

    __slots__ = ("_beginning", "_vocabulary_size")

    def __init__(self, beginning: LLMatcher, vocabulary_size: int) -> None:
        self._beginning = beginning
        self._vocabulary_size = vocabulary_size

    def guide(self) -> Guide:
        """For an answer that begins."""
        return Guide(self._beginning.deep_copy(), self._vocabulary_size)


class Grammars:
    """Those of one model, from any thread.

    tokenizer: makes llguidance's tokenizer for so many tokens, when the first grammar is asked for (a second or so);
    raises ValueError where the model's tokens have no bytes that a grammar could speak of.
    """

    def __init__(self, tokenizer: Callable[[int], LLTokenizer], vocabulary_size: int) -> None:
        self._make_tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._tokenizer: LLTokenizer | None = None
        self._tokenizer_lock = Lock()
        self._trial = GrammarTrial()
        self._known: OrderedDict[Grammar, CompiledGrammar | GrammarRefused] = OrderedDict()
        self._known_lock = Lock()

    def known(self, grammar: Grammar) -> bool:
        """``compiled`` would answer at once."""
        with self._known_lock:
            return grammar in self._known

    def compiled(self, grammar: Grammar) -> CompiledGrammar:
        """Takes milliseconds, at most some seconds. Raises GrammarRefused, which says what is wrong with it."""
        with self._known_lock:
            found = self._known.get(grammar)
            if found is not None:
                self._known.move_to_end(grammar)
        if found is None:
            try:
                found = self._compile(grammar)
            except GrammarRefused as refused:
                found = refused
            with self._known_lock:
                self._known[grammar] = found
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
        if isinstance(found, GrammarRefused):
            raise GrammarRefused(str(found))
        return found

    def close(self) -> None:
        """End the process beside this one."""
        self._trial.close()

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        from llguidance import LLMatcher

        defined = definition(grammar.kind, grammar.source)
        if grammar.kind != "json_object":
            self._trial.compile(grammar.kind, grammar.source)
        tokenizer = self._tokens()
        beginning = LLMatcher(tokenizer, defined, log_level=0, limits=limits())
        if beginning.is_error():
            raise GrammarRefused(beginning.get_error())
        compiled = CompiledGrammar(beginning, tokenizer.vocab_size)
        bits, failed = allowed_tokens([compiled.guide()])
        if failed or not bits.any():
            raise GrammarRefused(UNMATCHED)
        return compiled

    def _tokens(self) -> LLTokenizer:
        with self._tokenizer_lock:
            if self._tokenizer is None:
                try:
                    self._tokenizer = self._make_tokenizer(self._vocabulary_size)
                except ValueError as error:
                    raise GrammarRefused(f"this model cannot follow grammars: {error}") from error
            return self._tokenizer
