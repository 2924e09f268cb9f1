"""MT-bench questions: texts to ask, with a second one that goes on from the answer to the first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.traces.tables import find, rows

FOLDER = "mt_bench"
COLUMNS = ("question_id", "category", "turns")


@dataclass(frozen=True, slots=True)
class Question:
    """turns: what the user says, one text or two; the second refers to the answer to the first."""

    category: str
    turns: tuple[str, ...]


def questions(traces: Path, *, turns: int = 2) -> list[Question]:
    """Those of ``turns`` turns, of all files of the folder. Raises TraceMissing, TraceMalformed."""
    read = [question for path in find(traces, FOLDER, COLUMNS) for question in read_questions(path)]
    return [question for question in read if len(question.turns) == turns]


def read_questions(path: Path) -> list[Question]:
    read = []
    for row in rows(path):
        turns = row.list("turns", str)
        if not turns or not all(turns):
            raise row.wrong("turns are missing or empty")
        read.append(Question(row.text("category"), tuple(turns)))
    return read
