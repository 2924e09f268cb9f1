"""A benchmark that cannot begin ends the process with one line that says why, and an exit status of its own."""

from __future__ import annotations

import sys
from typing import NoReturn

UNUSABLE = 2
"""Exit status where nothing can be measured of what was asked for."""


def refuse(why: object) -> NoReturn:
    print(f"bench: {why}", file=sys.stderr)
    raise SystemExit(UNUSABLE) from None
