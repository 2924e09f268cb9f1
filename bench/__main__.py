"""``python -m bench NAME --json OUT``: run one benchmark. ``OUT`` may be ``-``.

Exit status 0 when it ran, whatever the figures. One that fails or is interrupted (SIGINT, SIGTERM) leaves what it has
measured, marked as incomplete, and ends with another status.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from pathlib import Path
from types import FrameType

from bench.planning import options as plan_options
from bench.replay import options as replay_options
from bench.report.results_page import write_page
from bench.results import Results
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.settings import SettingsError

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

OWN_REPORTS = {"paper", "plan", "replay"}
"""Benchmarks that write their report themselves: it shows more than their results."""
DTYPES = ("auto", "float32", "bfloat16", "float16", "int8", "q4")
INTERRUPTED = 130
UNUSABLE = 2
"""Exit status where the engine says that it cannot begin with such a model or setting."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, help=names)
    parser.add_argument("--json", metavar="OUT", help="write the results there; - for standard output")
    parser.add_argument("--html", metavar="OUT", help="write a report there: a page in one file, with plots")
    parser.add_argument("--quick", action="store_true", help="a smaller sample of the same")
    parser.add_argument("--traces", type=_folder, metavar="DIR", help="folder of traces; default: the length laws")
    parser.add_argument("--repeats", type=_count, default=None, help="measured rounds (default: the benchmark's own)")
    parser.add_argument("--mooncake", type=Path, metavar="FILE", help="prefix-index: the trace, in lines of JSON")
    parser.add_argument("--oracle", type=Path, metavar="FILE", help="prefix-index: hit ratios to compare with (JSON)")
    parser.add_argument(
        "--peers", nargs="?", const="", metavar="NAMES", help="serving: install and run these too (default: all)"
    )
    parser.add_argument("--peers-home", type=Path, metavar="DIR", help="serving: where peers are installed")
    parser.add_argument("--cases", metavar="NAMES", help="serving: these cases alone")
    parser.add_argument(
        "--dtype", default="bfloat16", choices=DTYPES, help="scaling, speculation, guided: the model's number format"
    )
    parser.add_argument("--figures", metavar="NAMES", help="paper: these alone, with commas between them")
    parser.add_argument("--full", action="store_true", help="paper: traces as long as its own, however long it takes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="scaling: write the plot there (SVG)")
    replay_options.add_to(parser)
    plan_options.add_to(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without one
    signal.signal(signal.SIGTERM, _interrupt)
    results = Results(options.name)
    about = BENCHMARKS[options.name]
    try:
        module = importlib.import_module(f"bench.{options.name.replace('-', '_')}")
        about = module.__doc__ or about
        module.run(results, options)
        results.incomplete = None
    except KeyboardInterrupt:
        results.incomplete = "interrupted"
        return INTERRUPTED
    except (ModelLoadError, SettingsError) as error:
        results.incomplete = str(error)
        print(f"bench: {error}", file=sys.stderr)
        return UNUSABLE
    except Exception as error:
        results.incomplete = f"{type(error).__name__}: {error}"
        raise
    finally:
        write(results, options.json)
        if options.html and options.name not in OWN_REPORTS and (results.results or results.skipped):
            write_page(results, about, options.html)
    return 0


def write(results: Results, to: str | None) -> None:
    """The table for people, and the results as JSON to a file or standard output (-). Nothing where there is nothing:
    a benchmark that could not begin leaves the file of an earlier run as it is."""
    if not results.results and not results.skipped:
        return
    results.print_table(sys.stderr)
    if to == "-":
        print(results.to_json())
    elif to:
        Path(to).write_text(results.to_json() + "\n")


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return number


def _folder(text: str) -> Path:
    if not (folder := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return folder


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, for which an event loop has a handler that lets its tasks end what they have started."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
