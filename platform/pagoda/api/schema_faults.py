"""Why a schema cannot be followed, without the schema's own words.

The engine's library says why in sentences that quote the schema, and of functions all of the grammar that they became.
What an error may repeat are keywords of JSON Schema and numbers.
"""

from __future__ import annotations

import re

_REFUSAL = re.compile(
    r"the grammar \(\w+\) is refused: (?:alternative (\d+): )?(?:at \d+\(\d+\): )?(?:failed to compile JSON schema: )?"
)
_OWN = re.compile(
    r"compiling it [\w ,.]+: make it simpler|no text can match it, or too many can|the engine is stopping"
    r"|an object has \d+ properties that are not required, of \d+ at most: [a-z ,]+"
    r"|it(?:s patterns)? [\w ,]+: make it simpler"
)
"""What the engine says in its own words, and of no schema's."""
_PATTERN_FAULT = re.compile(r"\nerror: ([a-z ,-]+)(?:\n|$)")
_FAULTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r'Unimplemented keys: \[((?:"[A-Za-z$]+"(?:, )?)+)\]'), r"it has keywords that are not offered: \1"),
    (re.compile(r"Unknown format: "), "it has a format of strings that is not offered"),
    (re.compile(r"Invalid type: "), "it has a type that JSON Schema has not"),
    (re.compile(r"type must be "), "each type must be a string or a list of strings"),
    (re.compile(r"(\w+) must be an (array|object)"), r"\1 must be an \2"),
    (re.compile(r"Expected (\w+) for '(\w+)'"), r"\2 must be of the type \1"),
    (re.compile(r"Pointer '"), "it has a $ref that leads nowhere"),
    (re.compile(r"Unsatisfiable schema: (\w+) \((\d+)\) is greater than (\w+) \((\d+)\)"), r"\1 is greater than \3"),
    (re.compile(r"Unsatisfiable schema: "), "no value can satisfy it"),
)


def alternative(refusal: str) -> int | None:
    """Which of several schemas is at fault, from 0; None where the engine does not know."""
    opening = _REFUSAL.match(refusal)
    return int(opening[1]) if opening is not None and opening[1] else None


def told(refusal: str) -> str | None:
    """A sentence for whoever wrote the schema; None where the engine refuses something else."""
    opening = _REFUSAL.match(refusal)
    if opening is None:
        return None
    return f"The schema cannot be followed: {_reason(refusal[opening.end() :])}."


def _reason(detail: str) -> str:
    if _OWN.fullmatch(detail):
        return detail
    if detail.startswith("regex parse error:"):
        faults = _PATTERN_FAULT.findall(detail)
        return f"a pattern is wrong: {faults[-1]}" if faults else "a pattern is wrong"
    for fault, words in _FAULTS:
        found = fault.match(detail)
        if found is not None:
            return found.expand(words)
    return "it has something that is not offered"
