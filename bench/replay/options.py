"""What ``python -m bench replay`` can be told."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from bench.option_types import amount, count
from bench.traces.catalogue import FORMATS
from bench.traces.fitting import LEAST_CONTEXT
from bench.traces.named import LAWS

LOWEST_TOKEN, HIGHEST_TOKEN = 1000, 39999
"""Ordinary words in every usual vocabulary."""
ECHO_TOKENS = (0, 255)


def add_to(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("replay", "a trace against a live server, through its API (docs/replay.md)")
    group.add_argument("--trace", metavar="NAME_OR_PATH", help=f"{', '.join([*FORMATS, *LAWS])}; or a file of one")
    group.add_argument("--url", metavar="URL", help="the server; without it, an installation of its own")
    group.add_argument("--keys", type=Path, metavar="FILE", help="JSON: API keys by client, or a list of them")
    group.add_argument("--model", metavar="NAME", help="of the server's; of its own: echo, a folder or a hub id")
    group.add_argument("--engine", default="", metavar="OPTIONS", help="for its own engine: --engine='--x 1'")
    group.add_argument("--tenants", type=count, default=2, metavar="N", help="of its own, where a trace has no clients")
    pace = group.add_mutually_exclusive_group()
    pace.add_argument("--speed", type=amount, default=None, metavar="F", help="of the trace's own time")
    pace.add_argument("--rate", type=amount, default=None, metavar="R", help="requests a second on average")
    group.add_argument("--requests", type=count, default=None, metavar="N", help="the first of the trace alone")
    group.add_argument("--seconds", type=amount, default=None, metavar="S", help="arrivals for so long, as replayed")
    group.add_argument(
        "--context", type=_context, default=None, metavar="N", help="cut to this instead of the server's"
    )
    group.add_argument("--long", choices=("cut", "skip"), default="cut", help="what becomes of longer requests")
    group.add_argument("--timeout", type=amount, default=600.0, metavar="S", help="for one request")
    group.add_argument("--token-ids", type=_range, default=None, metavar="LOW-HIGH", help="that prompts are made of")
    group.add_argument("--seed", type=int, default=None, help="of contents and arrivals; default: another each time")


def seed_of(options: argparse.Namespace) -> int:
    """The one asked for. Otherwise a new one: the server must not know the contents of an earlier replay."""
    return secrets.randbits(32) if options.seed is None else int(options.seed)


def _context(text: str) -> int:
    if (number := count(text)) < LEAST_CONTEXT:
        raise argparse.ArgumentTypeError(f"expected {LEAST_CONTEXT} or more: a token of a prompt and one of an answer")
    return number


def _range(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    if not dash or not low.isdecimal() or not high.isdecimal() or int(low) >= int(high):
        raise argparse.ArgumentTypeError(f"expected two token ids as in 1000-39999, not {text!r}")
    return int(low), int(high)
