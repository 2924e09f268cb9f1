"""What ``python -m bench plan`` can be told."""

from __future__ import annotations

import argparse

from bench.simulation.hardware import DEVICES

CPU = "cpu"


def add_to(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "plan", "how many requests a second a card sustains (docs/planning.md); with --model, --trace and --dtype"
    )
    names = ", ".join(DEVICES)
    group.add_argument("--gpu", type=str.lower, metavar="NAME", help=f"{names}, or {CPU}: this machine, measured now")
    group.add_argument("--devices", type=int, default=1, metavar="N", help="of them, the model divided among them")
    group.add_argument("--ttft-ms", type=float, default=1000.0, metavar="MS", help="to the first token, for 95 of 100")
    group.add_argument("--token-ms", type=float, default=100.0, metavar="MS", help="for each token after it")
    group.add_argument("--tenant-rate", type=float, metavar="R", help="requests/min of a tenant; default: the trace's")
    group.add_argument("--check", action="store_true", help="beside the real engine on this machine's processor")
