"""What options of the command line can be: how they are read, and what is said of those that are not."""

from __future__ import annotations

import argparse
import math
from pathlib import Path


def count(text: str) -> int:
    """A whole number above 0."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return number


def amount(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return number


def folder(text: str) -> Path:
    """One that is there."""
    if not (path := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path
