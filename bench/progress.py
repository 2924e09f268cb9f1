"""A progress bar on standard error that counts rounds; silent where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
WIDTH = 30


def progress(items: Iterable[T], label: str) -> Iterator[T]:
    """Yield ``items`` and draw how many are done."""
    items = list(items)
    for done, item in enumerate(items):
        draw(label, done, len(items))
        yield item
    draw(label, len(items), len(items))


def draw(label: str, done: int, total: int) -> None:
    """How many are done, on one line that is written over; silent where nobody looks."""
    if sys.stderr.isatty():
        bar = "#" * (WIDTH * done // max(1, total))
        end = "\n" if done == total else ""
        print(f"\r{label:30} [{bar:{WIDTH}}] {done}/{total}", end=end, file=sys.stderr, flush=True)
