"""Finding stop strings in a text that arrives in pieces.

One Knuth-Morris-Pratt automaton per stop string, advanced character by character: linear time, and the outcome does not
depend on how the text was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence


class _Automaton:
    """How much of ``pattern`` the text read so far ends with."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.matched = 0
        self._fallback = [0] * len(pattern)
        length = 0
        for index in range(1, len(pattern)):
            while length and pattern[index] != pattern[length]:
                length = self._fallback[length - 1]
            if pattern[index] == pattern[length]:
                length += 1
            self._fallback[index] = length

    def advance(self, character: str) -> bool:
        """Read one character; True when the pattern is complete. Not to be called again after that."""
        while self.matched and self.pattern[self.matched] != character:
            self.matched = self._fallback[self.matched - 1]
        if self.pattern[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.pattern)


class StopStrings:
    """Passes text through until a stop string is complete.

    Text that may be the beginning of a stop string is held back. The stop string that is complete first wins (of two
    ending at the same character, the longer); it is not part of the output, nor is anything after it. Raises ValueError
    for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._automata = [_Automaton(stop) for stop in stops]
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def feed(self, text: str) -> str:
        """The text that is now certain to be output. After a stop string is found it is always ''."""
        if self.found is not None:
            return ""
        if not self._automata:
            return text
        pending = self._held + text
        for index, character in enumerate(text, start=len(self._held) + 1):
            complete = [automaton.pattern for automaton in self._automata if automaton.advance(character)]
            if complete:
                self.found = max(complete, key=len)
                self._held = ""
                return pending[: index - len(self.found)]
        keep = max(automaton.matched for automaton in self._automata)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """The end of the text: what was held back is output after all."""
        held, self._held = self._held, ""
        return held
