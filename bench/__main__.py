"""``python -m bench NAME --json OUT``: run one benchmark. ``OUT`` may be ``-``. Exit status 0 when it ran, whatever the
figures."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from bench.results import Results

BENCHMARKS = {
    "serving": "output tokens per second beside transformers' static batch and its continuous batching",
    "prefix": "time to first token of a conversation's next turn, warm over cold",
    "prefix-index": "token hit ratio of the prefix index on a Mooncake trace, by capacity",
    "pool": "the scheduler and the KV pool alone: time per step, time and memory per block",
    "tiers": "a returning conversation from the tiers below a small pool, over computed again; what copies cost others",
    "fairness": "a tenant's time to first token beside one that floods, and what the flood loses",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, help=names)
    parser.add_argument("--json", metavar="OUT", help="write the results there; - for standard output")
    parser.add_argument("--quick", action="store_true", help="a smaller sample of the same")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="folder of traces; default: the length laws")
    parser.add_argument("--repeats", type=int, default=None, help="measured rounds (default: the benchmark's own)")
    parser.add_argument("--mooncake", type=Path, metavar="FILE", help="prefix-index: the trace, in lines of JSON")
    parser.add_argument("--oracle", type=Path, metavar="FILE", help="prefix-index: hit ratios to compare with (JSON)")
    options = parser.parse_args()
    results = Results(options.name)
    module = importlib.import_module(f"bench.{options.name.replace('-', '_')}")
    module.run(results, options)
    results.print_table(sys.stderr)
    if options.json == "-":
        print(results.to_json())
    elif options.json:
        Path(options.json).write_text(results.to_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
