"""What the KV-echo model answers without a pool: one prompt at a time, on a memory of its own.

Everything is remembered, so that comparing after every action is cheap.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda_inference.decoding.beam_search import BeamSearch, EarlyStopping, Hypothesis
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Candidates, Chunk
from pagoda_inference.model.echo import END, EchoBackend

CONTEXT = 512


class Alone:
    """The answer of one sampler to one prompt, computed as far as anybody asked."""

    def __init__(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._backend = EchoBackend(block_size=CONTEXT, pool_tokens=CONTEXT)
        self._sampler = sampler
        self._length = 0
        self._next = self._write(prompt)
        self._tokens: list[int] = []

    def token(self, place: int) -> int:
        """The output token at ``place``, from 0."""
        while len(self._tokens) <= place:
            self._tokens.append(self._next)
            self._next = self._write([self._next])
        return self._tokens[place]

    def _write(self, tokens: Sequence[int]) -> int:
        [token] = self._backend.run([Chunk(tokens, self._length, [0], self._sampler)])
        assert isinstance(token, int)
        self._length += len(tokens)
        return token


class Search:
    """A beam search, step by step: ``live[n]`` and ``found[n]`` after n steps."""

    def __init__(self, reference: Reference, prompt: Sequence[int], search: BeamSearch) -> None:
        self._reference = reference
        self._prompt = list(prompt)
        self._search = search
        self._live: list[list[list[int]]] = [[[]]]
        self._found: list[list[Hypothesis]] = [search.hypotheses()]

    def live(self, steps: int) -> list[list[int]]:
        """The open beams' tokens after that many steps."""
        self._advance(steps)
        return self._live[steps]

    def found(self, steps: int | None) -> list[Hypothesis]:
        """The answers after that many steps; at the search's end without."""
        self._advance(steps)
        return self._found[-1 if steps is None else steps]

    def _advance(self, steps: int | None) -> None:
        while not self._search.over and (steps is None or len(self._live) <= steps):
            count = self._search.candidates_per_beam
            beams = self._live[-1]
            told = [self._reference.candidates([*self._prompt, *beam], count) for beam in beams]
            picks = self._search.advance(told)
            self._live.append([[*beams[index], token] for index, token in picks])
            self._found.append(self._search.hypotheses())


class Reference:
    """Answers by prompt and sampler, or by how they are searched for."""

    def __init__(self) -> None:
        self._alone: dict[tuple[tuple[int, ...], Sampler], Alone] = {}
        self._searches: dict[tuple[object, ...], Search] = {}
        self._candidates: dict[tuple[tuple[int, ...], int], Candidates] = {}
        self._backend = EchoBackend(block_size=CONTEXT, pool_tokens=CONTEXT)

    def alone(self, prompt: Sequence[int], sampler: Sampler) -> Alone:
        key = tuple(prompt), sampler
        if key not in self._alone:
            self._alone[key] = Alone(prompt, sampler)
        return self._alone[key]

    def search(
        self, prompt: Sequence[int], width: int, answers: int, penalty: float, early: EarlyStopping, max_tokens: int
    ) -> Search:
        key = tuple(prompt), width, answers, penalty, early, max_tokens
        if key not in self._searches:
            search = BeamSearch(width, answers, penalty, early, [END], max_tokens=max_tokens)
            self._searches[key] = Search(self, prompt, search)
        return self._searches[key]

    def candidates(self, tokens: list[int], count: int) -> Candidates:
        key = tuple(tokens), count
        if key not in self._candidates:
            [told] = self._backend.run([Chunk(tokens, 0, [0], candidates=count)])
            assert isinstance(told, Candidates)
            self._candidates[key] = told
        return self._candidates[key]
