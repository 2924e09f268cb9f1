"""What replays are made of: requests, options, records of what was answered."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.replay import options
from bench.replay.record import Record
from bench.traces.request import TracedRequest


def traced(at_s: float, prompt: int = 8, client: str = "acme", output: int = 3, **more: Any) -> TracedRequest:
    return TracedRequest(at_s, prompt, output, client, **more)


def record(tenant: str, sent: float, *text: float, prompt: int = 100, output: int = 10, **more: Any) -> Record:
    """An answer whose pieces came at ``text``, the last with its end; all of its output tokens are written."""
    end = text[-1] if text else None
    outcome = "" if text else "queue_full"
    fields = {"written_tokens": output if text else 0, "end_s": end, "outcome": outcome} | more
    return Record(tenant, prompt, output, sent - 0.01, sent, list(text), **fields)


def asked(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_to(parser)
    read = parser.parse_args(arguments)
    return argparse.Namespace(**(vars(read) | {"traces": None, "quick": False, "html": None}))


def arena_file(path: Path, *rows: tuple[float, str, int, int]) -> Path:
    path.write_text("t_s,client,input_tokens,output_tokens\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path
