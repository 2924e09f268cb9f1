"""Files of traces, found by their folder and their columns; rows that say where they are when they are wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.traces.errors import TraceMalformed, TraceMissing

SUFFIXES = (".csv", ".jsonl")
PAIRS = "[[user tokens, assistant tokens], ...]"
"""What stands for the columns of a file whose lines are lists."""


def find(traces: Path, folder: str, columns: Iterable[str]) -> list[Path]:
    """Files of ``traces/folder`` that have all ``columns``, in the order of their names, one at least.

    Raises TraceMissing where there is none.
    """
    wanted = set(columns)
    found = [path for path in files(traces / folder) if wanted <= columns_of(path)]
    if not found:
        raise TraceMissing(f"no file with the columns {', '.join(sorted(wanted))} in {traces / folder}")
    return found


def files(folder: Path) -> list[Path]:
    """Tables in a folder, in the order of their names; none where there is no folder."""
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES and path.is_file())


def columns_of(path: Path) -> set[str]:
    """The names of a CSV file's columns, or the keys of the first object of a file of JSON lines."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return {name.strip() for name in next(csv.reader(file), ())}
    first = next(json_lines(path), None)
    if first is None:
        return set()
    return set(first.value) if isinstance(first.value, dict) else {PAIRS}


@dataclass(frozen=True, slots=True)
class Line:
    """One value of a file of JSON lines, and where it stands."""

    path: Path
    number: int
    value: Any

    def wrong(self, what: str) -> TraceMalformed:
        return TraceMalformed(f"{self.path}, line {self.number}: {what}")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of named fields, and where it stands."""

    path: Path
    number: int
    fields: Mapping[str, Any]

    def wrong(self, what: str) -> TraceMalformed:
        return TraceMalformed(f"{self.path}, line {self.number}: {what}")

    def tokens(self, name: str) -> int:
        """A whole number from 0."""
        value = self._field(name)
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise self.wrong(f"{name} is {value!r}, not a whole number") from None
        if number < 0 or isinstance(value, float):
            raise self.wrong(f"{name} is {value!r}, not a whole number from 0")
        return number

    def seconds(self, name: str) -> float:
        """A finite number."""
        value = self._field(name)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise self.wrong(f"{name} is {value!r}, not a number") from None
        if not -float("inf") < number < float("inf"):
            raise self.wrong(f"{name} is {value!r}, not a finite number")
        return number

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self._field(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(f"{name} is {value!r}, not a text")
        return value

    def list(self, name: str, kind: type) -> list[Any]:
        """A list whose items are all of one type."""
        value = self._field(name)
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self.wrong(f"{name} is not a list of {kind.__name__}")
        return value

    def _field(self, name: str) -> Any:
        value = self.fields.get(name)
        if value is None:
            raise self.wrong(f"{name} is missing")
        return value


def rows(path: Path) -> Iterator[Row]:
    """The rows of a CSV file, or of a file of JSON objects, one a line.

    Raises TraceMalformed for a row with more or fewer fields than columns, and for a line that is no object.
    """
    if path.suffix != ".csv":
        for line in json_lines(path):
            if not isinstance(line.value, dict):
                raise line.wrong("not an object")
            yield Row(path, line.number, line.value)
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        names = [name.strip() for name in next(reader, ())]
        for fields in reader:
            if not fields:
                continue
            if len(fields) != len(names):
                raise TraceMalformed(f"{path}, line {reader.line_num}: {len(fields)} fields for {len(names)} columns")
            yield Row(path, reader.line_num, dict(zip(names, fields, strict=True)))


def json_lines(path: Path) -> Iterator[Line]:
    """The values of a file of JSON, one a line; empty lines are passed over. Raises TraceMalformed for other ones."""
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                raise TraceMalformed(f"{path}, line {number}: no JSON: {error}") from None
            yield Line(path, number, value)
