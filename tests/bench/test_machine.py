"""Results name the machine, the versions and the date, so that figures can be told apart later."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import machine
from bench.results import Results

CPUINFO = """processor\t: 0
model name\t: A CPU of 2026
flags\t\t: fpu sse2 avx2 avx512f avx512_vnni amx_tile
bugs\t\t: none

processor\t: 1
model name\t: another
flags\t\t: avx512_bf16
"""


def test_results_name_machine_versions_and_date() -> None:
    document = json.loads(Results("pool").to_json())
    assert document["machine"]["cpu"]
    assert document["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert document["machine"]["memory_gib"] > 0
    assert (document["machine"]["gpu"] is None) is not torch.cuda.is_available()
    assert document["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert document["versions"]["torch"] == torch.__version__
    assert "transformers" in document["versions"]
    assert datetime.datetime.fromisoformat(document["date"]).tzinfo is not None


def test_instructions_are_those_of_the_first_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Path, "read_text", lambda path: CPUINFO)
    found = machine.machine()
    assert found["cpu"] == "A CPU of 2026"
    assert found["cpu_flags"] == ["avx2", "avx512f", "avx512_vnni", "amx_tile"]


def test_a_processor_that_says_nothing_of_itself_has_no_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Path, "read_text", lambda path: "processor\t: 0\nFeatures\t: fp asimd\n")
    assert machine.machine()["cpu_flags"] == []


def test_the_commit_of_a_checkout_says_whether_it_was_changed(tmp_path: Path) -> None:
    assert machine._commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("one")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    clean = machine._commit(tmp_path)
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "file").write_text("two")
    assert machine._commit(tmp_path) == f"{clean}-dirty"
