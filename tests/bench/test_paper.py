"""The paper's figures on small samples: the same code and the same checks as the whole reproduction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench import paper
from bench.figures.figure import Figure, Number, near, within
from bench.results import Results

REPOSITORY = Path(__file__).resolve().parents[2]

MISSED_BY_A_SMALL_SAMPLE = {
    "paper.fig12.opt13b_sharegpt.ratio_static",
    "paper.fig12.opt175b_alpaca.ratio_pow2",
    "paper.fig17.ratio_pow2",
    "paper.fig17.ratio_max",
}
"""A minute of arrivals is too short for queues to grow as they do in 15, and the laws of the chatbot have no memory.
Runs are seeded: what else is missed has changed with the code."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """(results, report) of a quick run from the length laws."""
    folder = tmp_path_factory.mktemp("paper")
    command = [sys.executable, "-m", "bench", "paper", "--quick"]
    command += ["--json", str(folder / "paper.json"), "--html", str(folder / "paper.html")]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=1500)
    return json.loads((folder / "paper.json").read_text()), (folder / "paper.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_a_quick_run_keeps_its_goals(quick: tuple[dict[str, Any], str]) -> None:
    document, _ = quick
    assert document["complete"]
    checked = [result for result in document["results"] if "goal" in result]
    assert len(checked) > 60
    missed = {result["name"]: (result["value"], result["goal"]) for result in checked if not result["ok"]}
    assert set(missed) <= MISSED_BY_A_SMALL_SAMPLE, missed


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_every_figure_is_in_the_report_with_its_plot(quick: tuple[dict[str, Any], str]) -> None:
    document, page = quick
    for key in ("table1", "fig2", "fig12", "fig13a", "fig13b", "fig14", "fig15a", "fig16", "fig17", "fig18b", "fig19a"):
        assert any(result["name"].startswith(f"paper.{key}.") for result in document["results"]), key
        assert f"({key}" in page, key
    assert page.count("<svg") >= 12
    assert {entry["name"] for entry in document["skipped"]} >= {"paper.tenancy.arena.all"}


def test_numbers_of_the_paper_stand_beside_ours() -> None:
    results = Results("paper")
    figure = Figure("fig0", "A figure", numbers=[Number("paged.batch", 30.0, "requests", paper=30.42, goal="28..36")])
    figure.skipped.append(("beam", "no model"))
    paper.record(results, figure)
    [result] = results.results
    assert result.pop("name") == "paper.fig0.paged.batch"
    assert result == {"value": 30.0, "unit": "requests", "goal": "28..36", "ok": True, "paper": 30.42}
    assert results.skipped == [{"name": "paper.fig0.beam", "why": "no model"}]


def test_goals_around_a_value_of_the_paper() -> None:
    assert within(13.62, 2) == "13.35..13.89"
    assert near(20.4, 2.5) == "17.9..22.9"


def test_an_interrupted_run_leaves_what_it_has_and_no_process(tmp_path: Path) -> None:
    """Ctrl-C, which a terminal sends to all its processes, in the middle of minutes of searching."""
    page, results = tmp_path / "paper.html", tmp_path / "paper.json"
    command = [sys.executable, "-m", "bench", "paper", "--figures", "table1,fig12"]
    command += ["--json", str(results), "--html", str(page)]
    running = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, stderr=subprocess.PIPE)
    try:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        while len(children.read_text().split()) < 2:
            assert running.poll() is None
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGINT)
        running.communicate(timeout=100)
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130
    document = json.loads(results.read_text())
    assert document["complete"] is False
    assert {name.split(".")[1] for name in (result["name"] for result in document["results"])} == {"table1"}
    assert "table1" in page.read_text()


def test_a_figure_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit, match="choose from"):
        paper.chosen("fig12,fig99")
    with pytest.raises(SystemExit, match="choose from"):
        paper.chosen(",")
    assert list(paper.chosen("fig12")) == ["fig12"]
    assert list(paper.chosen("fig2,fig13a,,fig13b,kept")) == ["fig13", "kept_rounds"]
