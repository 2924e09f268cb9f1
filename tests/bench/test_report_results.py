"""Any benchmark's results become a page: everything that was measured is in it, and what belongs together is drawn."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.report.results_page import results_page
from bench.results import Results


def results() -> Results:
    made = Results("toy")
    made.incomplete = None
    return made


def sections(html: str) -> dict[str, str]:
    """Each section's title -> its HTML."""
    _, *parts = re.split(r"<h2[^>]*>", html)
    return {part.partition("</h2>")[0]: part.partition("</h2>")[2] for part in parts}


def rows(html: str) -> list[list[str]]:
    """The rows of all tables, heads too."""
    return [
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", html, re.S)
    ]


def test_results_stand_in_sections_by_their_names_with_the_columns_that_they_need() -> None:
    made = results()
    made.add("toy.bf16.ours_tok_s", [210.0, 200.0, 230.0], unit="tok/s", goal=">=250")
    made.add("toy.bf16.ratio[0.5].p95", 1.3, goal=">=1.1")
    made.add("toy.seconds", 12.0, unit="s", paper=10.0)
    made.add("toy.slots", 15728, paper=15715.25)
    found = sections(results_page(made, "").html())
    assert list(found) == ["bf16", "Overall"]
    assert rows(found["bf16"]) == [
        ["name", "value", "unit", "least to greatest", "goal", ""],
        ["ours_tok_s", "210", "tok/s", "200 to 230 (n = 3)", "&gt;=250", "missed"],
        ["ratio[0.5].p95", "1.3", "", "", "&gt;=1.1", "met"],
    ]
    assert rows(found["Overall"]) == [
        ["name", "value", "unit", "paper", "difference"],
        ["seconds", "12", "s", "10", "2"],
        ["slots", "15,728", "", "15,715.25", "12.8"],
    ]


def test_lists_and_objects_are_tables_of_their_own() -> None:
    made = results()
    made.add_value("toy.load", {"running": 265.6, "nested": [1, {"a": None}]})
    made.add_value("toy.turns", [0.5, 0.25], unit="s")
    made.add_value("toy.none", [])
    made.add_value("toy.on", True)
    html = results_page(made, "").html()
    assert rows(html) == [
        ["name", "value"], ["on", "true"],
        ["", "value"], ["running", "266"], ["nested", "[1, {&quot;a&quot;: null}]"],
        ["", "value"], ["1", "0.5"], ["2", "0.25"],
        ["none"], ["nothing"],
    ]  # fmt: skip
    assert "<caption>turns (s)</caption>" in html


def plots(html: str) -> list[str]:
    return re.findall(r'aria-label="([^"]*)">\n<title>', html)


def test_numbers_in_names_and_keys_become_lines() -> None:
    made = results()
    for batch in (1, 4, 16):
        for context in (128, 512):
            made.add(f"toy.step_ms[{batch},{context}]", 1.0 + batch * context / 1000, unit="ms")
    made.add_value("toy.hit_ratio_by_capacity", {"500": 0.1, "1000": 0.2, "50000": 0.4, "inf": 0.5})
    made.add("toy.share[float32,16]", 0.9)
    html = results_page(made, "").html()
    assert plots(html) == ["step_ms", "hit_ratio_by_capacity"]
    assert "step_ms[ ,128]: 16, 3.05" in html
    assert html.count('<g class="c0 series"') == 2
    assert html.count('<g class="c1 series"') == 1


def test_results_of_one_unit_become_bars_and_a_single_one_does_not() -> None:
    made = results()
    made.add("toy.bf16.ours_tok_s", [210.0, 200.0, 230.0], unit="tok/s")
    made.add("toy.bf16.theirs_tok_s", 150.0, unit="tok/s")
    made.add("toy.bf16.step_ms", 4.0, unit="ms")
    html = results_page(made, "").html()
    assert plots(html) == ["bf16, tok/s"]
    assert "median, ours_tok_s: 210 (200 to 230)" in html


def test_a_value_that_cannot_be_drawn_is_still_told() -> None:
    made = results()
    made.add("toy.a_s", float("nan"), unit="s")
    made.add("toy.b_s", float("inf"), unit="s")
    made.add("toy.c_s", 1e20, unit="s")
    html = results_page(made, "").html()
    assert [row[1] for row in rows(html)[1:]] == ["nan", "inf", "1e20"]
    assert not plots(html)


def test_what_was_skipped_and_what_is_not_complete_is_told() -> None:
    made = Results("toy")
    made.incomplete = "interrupted"
    made.skip("toy.gpu", "no CUDA device")
    found = sections(results_page(made, "").html())
    assert list(found) == ["Not complete", "Not measured"]
    assert "interrupted" in found["Not complete"]
    assert rows(found["Not measured"]) == [["name", "why"], ["toy.gpu", "no CUDA device"]]


def run(monkeypatch: pytest.MonkeyPatch, path: Path, benchmark) -> int:
    module = types.ModuleType("bench.pool", "What it measures.\n\n``toy``: it.")
    module.run = benchmark  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.pool", module)
    monkeypatch.setattr(sys, "argv", ["bench", "pool", "--html", str(path)])
    return command.main()


def test_the_command_writes_a_report_of_any_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert run(monkeypatch, path, lambda results, options: results.add("pool.step_ms", 1.5, unit="ms")) == 0
    html = path.read_text()
    assert "<p>What it measures.</p><p><code>toy</code>: it.</p>" in html
    assert rows(html) == [["name", "value", "unit"], ["step_ms", "1.5", "ms"]]
    assert f"python -m bench pool --html {path}" in html


def test_a_benchmark_that_fails_leaves_a_report_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(results: Results, options) -> None:
        results.add("pool.step_ms", 1.5)
        raise RuntimeError("out of <memory>")

    with pytest.raises(RuntimeError):
        run(monkeypatch, tmp_path / "report.html", fails)
    assert "RuntimeError: out of &lt;memory&gt;" in sections((tmp_path / "report.html").read_text())["Not complete"]


def test_a_benchmark_that_could_not_begin_leaves_no_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuses(results: Results, options) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(monkeypatch, tmp_path / "report.html", refuses)
    assert not (tmp_path / "report.html").exists()
