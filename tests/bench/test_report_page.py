"""A report's page is whole, loads and runs nothing, shows texts as texts, and says in words what was met or missed."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench.report.axis import exact, number
from bench.report.page import Page
from bench.report.plots import BarSeries, Series, bars, lines

HOSTILE = '<script>alert("\'&\x00")</script><img src=x onerror=alert(1)>'
MACHINE = {"cpu": "A <processor>", "cores": 2, "cpu_flags": ["avx2"], "gpu": None, "memory_gib": 23.5}
VERSIONS = {"python": "3.11.7", "commit": "0123456789abcdef0123456789abcdef01234567-dirty"}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Reader(HTMLParser):
    """Reads a page: its elements with their attributes, its texts by element; every element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert not self.open, "not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.append((self.open[-1], data))

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def page(title: str = "t", intro: str = "", command: str = "python -m bench paper") -> Page:
    return Page(title, intro, command=command, date="2026-11-30T15:00:00+00:00", machine=MACHINE, versions=VERSIONS)


def filled() -> Page:
    report = page(HOSTILE, HOSTILE, HOSTILE)
    report.section(HOSTILE, HOSTILE)
    report.table([HOSTILE, "n"], [[HOSTILE, 1]], HOSTILE)
    report.plot(lines(HOSTILE, "x", "y", [Series(HOSTILE, [(1, 1)])]), HOSTILE)
    report.plot(bars(HOSTILE, "y", [HOSTILE], [BarSeries(HOSTILE, [1.0])]), HOSTILE)
    return report


def test_hostile_texts_are_texts_everywhere() -> None:
    read = Reader(filled().html())
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "img", "iframe", "object", "link", "form"}
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    shown = HOSTILE.replace("\x00", "\ufffd")
    for tag in ("title", "h1", "h2", "p", "td", "th", "caption", "figcaption", "code"):
        assert shown in read.of(tag), tag


def test_a_page_refers_to_nothing_outside_itself_and_forbids_it() -> None:
    html = filled().html()
    assert set(re.findall(r"\b(?:https?:)?//[^\s\"'<)]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in html
    assert "@import" not in html
    [policy] = [a["content"] for _, a in Reader(html).elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_head_says_when_where_with_what_and_how() -> None:
    read = Reader(page().html())
    assert dict(zip(read.of("dt"), read.of("dd") + read.of("code"), strict=True)) == {
        "Measured": "2026-11-30 15:00:00 UTC",
        "Machine": "A <processor>, 2 cores, avx2, 23.5 GiB, no GPU",
        "Versions": "python 3.11.7, commit 0123456789ab-dirty",
        "Command": "python -m bench paper",
    }


def test_the_head_is_of_this_process_where_nothing_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench/__main__.py", "pool", "--json", "a file"])
    read = Reader(Page("t").html())
    assert read.of("code") == ["python -m bench pool --json 'a file'"]
    assert f"{len(os.sched_getaffinity(0))} cores" in " ".join(read.of("dd"))


def cells(report: Page) -> list[tuple[str, str | None]]:
    """Each cell of the page's tables: its text, and its class."""
    return [
        (re.sub(r"<[^>]+>", "", text), (re.search(r'class="(\w+)"', attributes) or [None, None])[1])
        for attributes, text in re.findall(r"<t[dh]([^>]*)>(.*?)</t[dh]>", report.html(), re.S)
    ]


@pytest.mark.parametrize(
    ("value", "all_digits", "four"),
    [
        (132.44, "132.44", "132.4"),
        (30.42, "30.42", "30.42"),
        (15_700, "15,700", "15,700"),
        (15728.0, "15,728", "15,728"),
        (0.2165947, "0.2165947", "0.2166"),
        (2.0, "2", "2"),
        (-1.5, "-1.5", "-1.5"),
        (1e9, "1,000,000,000", "1e9"),
    ],
)
def test_a_number_has_all_its_digits_or_as_many_as_are_asked_for(value: float, all_digits: str, four: str) -> None:
    assert (exact(value), number(value, 4)) == (all_digits, four)


def test_numbers_stand_on_the_right_and_texts_on_the_left() -> None:
    report = page()
    rows = [["a", 15728, 0.3, "1.2 s", "12 GB"], ["b", None, -3.0, "–", "about 13"]]
    report.table(["name", "slots", "difference", "time", "text"], rows)
    assert cells(report) == [
        ("name", None), ("slots", "number"), ("difference", "number"), ("time", "number"), ("text", None),
        ("a", None), ("15,728", "number"), ("0.3", "number"), ("1.2 s", "number"), ("12 GB", None),
        ("b", None), ("", "number"), ("-3", "number"), ("–", "number"), ("about 13", None),
    ]  # fmt: skip


def test_a_column_of_nothing_is_as_narrow_as_one_of_numbers() -> None:
    report = page()
    report.table(["name", "paper", "goal"], [["a", None, "–"], ["b", "", None]])
    assert [kind for _, kind in cells(report)] == 3 * [None, "number", "number"]
    empty = page()
    empty.table(["name"], [])
    assert cells(empty) == [("name", None)]


def test_goals_are_met_or_missed_in_words() -> None:
    report = page()
    report.table(["name", "goal"], [["a", True], ["b", False], ["c", None]])
    assert [text for text, _ in cells(report)][2:] == ["a", "met", "b", "missed", "c", ""]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="3 cells in a table of 2 columns"):
        page().table(["a", "b"], [[1, 2, 3]])


def test_what_is_no_svg_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an SVG document"):
        page().plot("<p>no</p>")


def test_paragraphs_and_code_in_texts() -> None:
    report = page()
    report.section("s", "One `--flag <x>`\nline.\n\nTwo.")
    html = report.html()
    assert "<p>One <code>--flag &lt;x&gt;</code>\nline.</p><p>Two.</p>" in html


def test_a_page_of_many_sections_begins_with_links_to_all_of_them() -> None:
    report = page()
    names = ["Figure 2", "Figure 12", "Figure <13>", "Figure 19"]
    for name in names[:3]:
        report.section(name)
    assert not [tag for tag, _ in Reader(report.html()).elements if tag == "nav"]
    report.section(names[3])
    read = Reader(report.html())
    assert read.of("a") == read.of("h2") == names
    links = [str(attributes["href"])[1:] for tag, attributes in read.elements if tag == "a"]
    assert links == [attributes["id"] for tag, attributes in read.elements if tag == "h2"]


def test_a_page_is_written_whole_in_utf_8(tmp_path: Path) -> None:
    report = page("Latenz – 지연 시간")
    report.write(tmp_path / "new" / "report.html")
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8") == report.html()
    assert "Latenz – 지연 시간" in Reader(report.html()).of("h1")
