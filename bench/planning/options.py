"""What ``python -m bench plan`` can be told."""

from __future__ import annotations

import argparse

from bench.option_types import amount, count
from bench.refusal import refuse
from bench.simulation.hardware import DEVICES

CPU = "cpu"
BYTES = {"auto": 2, "float32": 4, "bfloat16": 2, "float16": 2}
"""Of a weight and a KV value on a GPU."""


def add_to(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "plan", "how many requests a second a card sustains (docs/planning.md); with --model, --trace and --dtype"
    )
    names = ", ".join(DEVICES)
    group.add_argument("--gpu", type=str.lower, metavar="NAME", help=f"{names}, or {CPU}: this machine, measured now")
    group.add_argument("--devices", type=count, default=1, metavar="N", help="of them, the model divided among them")
    group.add_argument("--ttft-ms", type=amount, default=1000.0, metavar="MS", help="to the first token, for 95 of 100")
    group.add_argument("--token-ms", type=amount, default=100.0, metavar="MS", help="for each token after it")
    group.add_argument("--tenant-rate", type=amount, metavar="R", help="requests/min of a tenant; default: the trace's")
    group.add_argument("--check", action="store_true", help="beside the real engine on this machine's processor")


def check_options(options: argparse.Namespace) -> None:
    """That they go together; ends the process where they do not."""
    names = ", ".join(DEVICES)
    if options.gpu is None:
        refuse(f"plan needs a card: --gpu {names} or {CPU}")
    if options.gpu == CPU:
        if options.devices > 1:
            refuse(f"--gpu {CPU} --devices {options.devices}: this machine is one; --devices goes with {names}")
        return
    if options.gpu not in map(str.lower, DEVICES):
        refuse(f"--gpu {options.gpu}: choose from {names} or {CPU}")
    if options.model is None:
        refuse("plan needs a model: --model with a name, a folder or a hub id")
    if options.dtype not in BYTES:
        refuse(f"--dtype {options.dtype} is served on a CPU alone: with --gpu {options.gpu} take {', '.join(BYTES)}")
