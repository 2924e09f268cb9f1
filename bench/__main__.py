"""``python -m bench NAME --json OUT``: run one benchmark. ``OUT`` may be ``-``.

Exit status 0 when it ran, whatever the figures. One that fails or is interrupted (SIGINT, SIGTERM) leaves what it has
measured, marked as incomplete, and ends with another status.
"""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from types import FrameType

from bench.command_line import BENCHMARKS, parsed
from bench.refusal import UNUSABLE
from bench.report.results_page import write_page
from bench.results import Results
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.settings import SettingsError

OWN_REPORTS = {"paper", "plan", "replay"}
"""Benchmarks that write their report themselves: it shows more than their results."""
INTERRUPTED = 130


def main() -> int:
    options = parsed(sys.argv[1:])
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, for which an event loop has a handler that lets its tasks end what they have started."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
