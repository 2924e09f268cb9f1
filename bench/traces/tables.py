"""Files of traces, found by their folder and their columns; rows that say where they are when they are wrong."""

from __future__ import annotations

import csv
import itertools
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
    """The names of a CSV file's columns, or the keys of the first object of a file of JSON lines.

    Raises TraceMalformed for a file that is no text, or begins with neither.
    """
    if path.suffix == ".csv":
        return {name.strip() for _, fields in itertools.islice(_csv_lines(path), 1) for name in fields}
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
    lines = _csv_lines(path)
    names = [name.strip() for name in next(lines, (0, []))[1]]
    for number, fields in lines:
        if not fields:
            continue
        if len(fields) != len(names):
            raise TraceMalformed(f"{path}, line {number}: {len(fields)} fields for {len(names)} columns")
        yield Row(path, number, dict(zip(names, fields, strict=True)))


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Numbers of lines and their fields, the columns' names first. Raises TraceMalformed."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        try:
            for fields in reader:
                yield reader.line_num, fields
        except csv.Error as error:
            raise TraceMalformed(f"{path}, line {reader.line_num}: no CSV: {error}") from None
        except UnicodeDecodeError:
            raise _no_text(path) from None


def json_lines(path: Path) -> Iterator[Line]:
    """The values of a file of JSON, one a line; empty lines are passed over. Raises TraceMalformed for other ones."""
    with path.open(encoding="utf-8") as file:
        try:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield Line(path, number, _parsed(text, f"{path}, line {number}"))
        except UnicodeDecodeError:
            raise _no_text(path) from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceMalformed(f"{where}: no JSON: {error}") from None


def _no_text(path: Path) -> TraceMalformed:
    """Of a file that cannot be decoded: with the first such line. What reads text decodes many lines at once."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return TraceMalformed(f"{path}, line {number}: no text in UTF-8")
    return TraceMalformed(f"{path}: no text in UTF-8")
