"""Why an answer cannot be led through its grammar, in words that are neither the grammar's nor the answer's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GrammarError(Exception):
    """An answer cannot be led through its grammar any further.

    reason: why, in words that are neither the grammar's nor the answer's. too_complex: a limit of ``limits()`` was
    reached, which a simpler grammar does not; otherwise the grammar was left.
    """

    def __init__(self, reason: str, *, too_complex: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_complex = too_complex


_TOO_COMPLEX: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Current row has (\d+) items; max is (\d+)"), r"it has \1 ways to go on at one place, of \2 at most"),
    (re.compile(r"[Tt]oo many items"), "it has too many ways to go on at one place"),
    (re.compile(r"(?i)\b(?:fuel|lexer states|too complex)\b"), "its patterns take too long to follow"),
)


def grammar_error(matcher: LLMatcher) -> GrammarError:
    """What has stopped a matcher. llguidance's own sentences may quote the grammar and the answer."""
    told = matcher.get_error()
    for fault, words in _TOO_COMPLEX:
        found = fault.search(told)
        if found is not None:
            return GrammarError(found.expand(words), too_complex=True)
    stop = str(matcher.stop_reason())
    return GrammarError(f"the answer left it ({stop})", too_complex=stop.endswith("TooComplex"))
