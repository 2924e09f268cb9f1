"""The report of a replay says what was measured, and what was not."""

from __future__ import annotations

import re
from pathlib import Path

from bench.replay.figures import add_figures
from bench.replay.page import write_page
from bench.results import Results
from tests.bench.replaying import record


def test_the_report_has_the_figures_and_no_key(tmp_path: Path) -> None:
    results = Results("replay")
    trace = {"name": "t", "requests": 3, "cut": 1, "too_long": 0, "empty": 0, "context": 100, "model": "fake"}
    results.add_value("replay.trace", trace)
    results.add_value("replay.not_due", 0)
    records = [
        record("acme", 0.0, 0.5, 0.75, cached_tokens=25),
        record("rival <b>", 0.2, 0.7, 0.9),
        record("rival <b>", 0.3),
    ]
    add_figures(results, records)
    write_page(tmp_path / "out.html", "t", results, records)
    page = (tmp_path / "out.html").read_text()
    for text in ("queue_full", "rival &lt;b&gt;", "Time to first token", "What tenants got", "0.125"):
        assert text in page
    assert "rival <b>" not in page


def test_a_report_is_written_where_nothing_was_answered(tmp_path: Path) -> None:
    results = Results("replay")
    trace = {"name": "t", "requests": 1, "cut": 0, "too_long": 0, "empty": 0, "context": 100, "model": "fake"}
    results.add_value("replay.trace", trace)
    results.add_value("replay.not_due", 0)
    records = [record("acme", 0.5), record("rival", 0.6)]
    add_figures(results, records)
    write_page(tmp_path / "out.html", "t", results, records)
    page = (tmp_path / "out.html").read_text()
    for text in ("queue_full", "No request was answered."):
        assert text in page
    for text in ("Not complete", "Jain", "TTFT", "Of the requests that were answered"):
        assert text not in page
    [tenants] = re.findall(r'<th scope="col">tenant</th>.*?</table>', page, re.S)
    assert tenants.count('<th scope="col"') == tenants.count('<th scope="col" class="number"') + 1


def test_a_report_of_a_replay_that_did_not_end_says_so(tmp_path: Path) -> None:
    results = Results("replay")
    trace = {"name": "t", "requests": 1, "cut": 0, "too_long": 0, "empty": 0, "context": 100, "model": "fake"}
    results.add_value("replay.trace", trace)
    results.add_value("replay.not_due", 1)
    records = [record("acme", 0.0, outcome="unfinished")]
    records[0].due_s = records[0].sent_s = 0.0
    add_figures(results, records)
    write_page(tmp_path / "out.html", "t", results, records, "interrupted")
    assert "The replay did not come to its end: interrupted" in (tmp_path / "out.html").read_text()
