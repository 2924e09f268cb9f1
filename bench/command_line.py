"""The command line of ``python -m bench``: whose options are whose, and what is refused before anything runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bench.option_types import count, folder
from bench.planning import options as plan_options
from bench.replay import options as replay_options

BENCHMARKS = {
    "serving": "output tokens per second beside transformers, and with --peers vLLM and llama.cpp",
    "scaling": "time of a decode step by batch and context beside measured floors; what a step takes beside the model",
    "prefix": "time to first token of a conversation's next turn, warm over cold",
    "prefix-index": "token hit ratio of the prefix index on a Mooncake trace, by capacity",
    "pool": "the scheduler and the KV pool alone: time per step, time and memory per block",
    "tiers": "a returning conversation from the tiers below a small pool, over computed again; what copies cost others",
    "kernels": "on a CUDA device: the Triton kernels' bandwidth over a copy's, and their time beside torch's attention",
    "speculation": "decoding with drafts looked up in the text over decoding without",
    "guided": "answers that follow JSON schemas: how many end, whether they are valid, time per token over without",
    "batch": "throughput of a batch over that of the same requests sent directly",
    "api": "the REST API over the engine's own socket: tokens per second, time to first token; time of a rejection",
    "paper": "the PagedAttention paper's figures in virtual time: the scheduler and the pool beside its baselines",
    "plan": "how many requests a second, and tenants, a card sustains within latency targets, in virtual time",
    "beams": "what the beams of a real model share, by width, and the law of the simulation's",
    "replay": "a trace against a live server through its API: latencies, cache hits, fairness, errors",
    "fairness": "a tenant's time to first token beside one that floods, and what the flood loses",
}

OUTPUTS = ("json", "html", "plot")
"""Options whose values are files to write."""
DTYPES = ("auto", "float32", "bfloat16", "float16", "int8", "q4")

REPEATED = "api batch fairness guided kernels plan pool prefix scaling serving speculation tiers"
OPTIONS: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("--traces", "beams paper plan replay serving", {
        "type": folder, "metavar": "DIR", "help": "folder of traces; default: the length laws",
    }),
    ("--repeats", REPEATED, {"type": count, "metavar": "N", "help": "measured rounds (default: the benchmark's own)"}),
    ("--dtype", "guided plan scaling speculation", {
        "default": "bfloat16", "choices": DTYPES, "help": "the model's number format; default: %(default)s",
    }),
    ("--mooncake", "prefix-index", {"type": Path, "metavar": "FILE", "help": "the trace, in lines of JSON"}),
    ("--oracle", "prefix-index", {"type": Path, "metavar": "FILE", "help": "hit ratios to compare with (JSON)"}),
    ("--peers", "serving", {
        "nargs": "?", "const": "", "metavar": "NAMES", "help": "install and run these too (default: all)",
    }),
    ("--peers-home", "serving", {"type": Path, "metavar": "DIR", "help": "where peers are installed"}),
    ("--cases", "serving", {"metavar": "NAMES", "help": "these cases alone"}),
    ("--figures", "paper", {"metavar": "NAMES", "help": "these alone, with commas between them"}),
    ("--full", "paper", {"action": "store_true", "help": "traces as long as its own, however long it takes"}),
    ("--plot", "scaling", {"type": Path, "metavar": "FILE", "help": "write the plot there (SVG)"}),
    ("--trace", "plan", {"metavar": "NAME_OR_PATH", "help": "as of replay; default: law:sharegpt"}),
    ("--model", "plan", {"metavar": "NAME", "help": "a name, a folder or a hub id"}),
    ("--requests", "plan", {"type": count, "metavar": "N", "help": "the first of the trace alone"}),
)  # fmt: skip
"""Options that not all benchmarks have: the option, whose it is, how it is read. Others are in OWN_OPTIONS."""
OWN_OPTIONS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "plan": plan_options.add_to,
    "replay": replay_options.add_to,
}


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for. Ends the process, with status 2 and a line that says why, where that cannot be."""
    common = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--json", metavar="OUT", help="write the results there; - for standard output")
    common.add_argument("--html", metavar="OUT", help="write a report there: a page in one file, with plots")
    common.add_argument("--quick", action="store_true", help="a smaller sample of the same")
    parser = _Parser(
        prog="python -m bench",
        usage="%(prog)s NAME [options]",
        description=__doc__,
        epilog="%(prog)s NAME --help: the options of that one.",
        allow_abbrev=False,
        parents=[common],
    )
    of_name = parser.add_subparsers(dest="name", metavar="NAME", prog=parser.prog)
    parsers: dict[str, _Parser] = {}
    for name, what in BENCHMARKS.items():
        own = parsers[name] = of_name.add_parser(
            name, help=what, description=what, usage="%(prog)s [options]", allow_abbrev=False, parents=[common]
        )
        for option, whose, how in OPTIONS:
            if name in whose.split():
                own.add_argument(option, **how)
        if name in OWN_OPTIONS:
            OWN_OPTIONS[name](own)
    given = argparse.Namespace(json=None, html=None, quick=False)
    options, unknown = parser.parse_known_args(arguments, given)
    if options.name is None:
        parser.error("the name of a benchmark is missing; --help lists them")
    own = parsers[options.name]
    if unknown:
        option = next((one for one in unknown if one.startswith("-")), unknown[0]).partition("=")[0]
        own.error(f"argument {option}: not an option of {options.name}; --help lists those that are")
    if options.quick and getattr(options, "full", False):
        own.error("--full and --quick: choose one of them")
    if options.html == "-":
        own.error("--html -: a report needs a file; only --json takes - for standard output")
    for output in OUTPUTS:
        to = getattr(options, output, None)
        if to is not None and (output, to) != ("json", "-"):
            try:
                _check_writable(Path(to))
            except OSError as error:
                own.error(f"--{output} {to}: cannot be written: {error.strerror}")
    return options


def _check_writable(path: Path) -> None:
    """Before hours of measuring: makes the folders on the way, and leaves a file that is there as it is.

    Raises:
        OSError: nothing can be written there.
    """
    path = Path(os.path.realpath(path))  # what a link that leads nowhere yet would become
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    if path.is_file() or path.is_dir():
        path.open("ab").close()
    elif not path.exists():
        path.open("xb").close()
        path.unlink()


class _Parser(argparse.ArgumentParser):
    """One whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")
