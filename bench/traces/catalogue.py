"""The traces by name, and files of them by what is in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.traces import recorded, sharegpt, tables
from bench.traces.errors import TraceMissing
from bench.traces.request import TracedRequest


@dataclass(frozen=True)
class Format:
    """One kind of trace: its folder, the columns that it is known by, and how a file of it is read."""

    folder: str
    columns: Sequence[str]
    read: Callable[[Path], list[TracedRequest]]


FORMATS = {
    "sharegpt": Format(sharegpt.FOLDER, sharegpt.PAIR_COLUMNS, sharegpt.read_pair_requests),
    "chatbot": Format(sharegpt.FOLDER, sharegpt.ROUND_COLUMNS, sharegpt.read_rounds),
    "multiturn": Format(sharegpt.FOLDER, sharegpt.MULTITURN_COLUMNS, sharegpt.read_turns),
    "azure": Format(recorded.AZURE_FOLDER, recorded.AZURE_COLUMNS, recorded.read_azure),
    "mooncake": Format(recorded.MOONCAKE_FOLDER, recorded.MOONCAKE_COLUMNS, recorded.read_mooncake),
    "arena": Format(recorded.ARENA_FOLDER, recorded.ARENA_COLUMNS, recorded.read_arena),
    "servegen": Format(recorded.SERVEGEN_FOLDER, recorded.SERVEGEN_COLUMNS, recorded.read_servegen),
    "sharegpt-llama2": Format(recorded.LLAMA2_FOLDER, recorded.LLAMA2_COLUMNS, recorded.read_llama2_lengths),
}


def read(name: str, traces: Path) -> list[TracedRequest]:
    """The trace ``name`` of FORMATS from the folder of traces; of several files the first by name.

    ``sharegpt`` has the paper's means, whatever files there are. Raises TraceMissing, TraceMalformed.
    """
    if name == "sharegpt":
        return [TracedRequest(0.0, prompt, output) for prompt, output in sharegpt.paper_pairs(traces)]
    format = FORMATS[name]
    return format.read(tables.find(traces, format.folder, format.columns)[0])


def read_file(path: Path) -> list[TracedRequest]:
    """A file of any of FORMATS, told by its columns, or the first such file of a folder.

    Raises TraceMissing where there is none, TraceMalformed.
    """
    candidates = tables.files(path) if path.is_dir() else [path] if path.is_file() else []
    for candidate in candidates:
        columns = tables.columns_of(candidate)
        matching = [format for format in FORMATS.values() if set(format.columns) <= columns]
        if matching:
            return max(matching, key=lambda format: len(format.columns)).read(candidate)
    known = "; ".join(f"{name}: {', '.join(format.columns)}" for name, format in FORMATS.items())
    raise TraceMissing(f"no trace at {path}: expected a CSV or JSONL file with the columns of one of {known}")
