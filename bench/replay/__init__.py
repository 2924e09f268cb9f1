"""A trace replayed against a live server through its API: ``python -m bench replay``, docs/replay.md."""

from __future__ import annotations

import argparse

from bench.results import Results


def run(results: Results, options: argparse.Namespace) -> None:
    from bench.replay import benchmark  # not for other benchmarks, which see the options alone

    benchmark.run(results, options)
