"""Reports in a real browser: nothing is cut off, no text covers another, and they fit phones, the dark and paper."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

from bench.report.page import Page as Report
from bench.report.plots import BarSeries, Mark, Series, bars, lines
from bench.report.svg import GROUNDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

SYSTEMS = ["Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "Pagoda"]
LONG = "a figure whose title is a sentence that goes on for longer than any line of the plot could ever be, as some do"
RATES = [step / 4 for step in range(1, 9)]

BOXES = """() => [...document.querySelectorAll("svg")].map(svg => {
    const frame = svg.getBoundingClientRect();
    const scale = 760 / frame.width;
    return [...svg.querySelectorAll("text")].map(text => {
        const box = text.getBoundingClientRect();
        return {text: text.textContent, turned: !!text.getAttribute("transform"),
                left: (box.left - frame.left) * scale, top: (box.top - frame.top) * scale,
                right: (box.right - frame.left) * scale, bottom: (box.bottom - frame.top) * scale,
                height: frame.height * scale};
    });
})"""


def plots() -> list[str]:
    rising = [[(rate, 0.03 + max(0.0, rate - knee) ** 2) for rate in RATES] for knee in (0.5, 1.0, 1.2, 1.7)]
    series = [Series(name, points, points) for name, points in zip(SYSTEMS, rising, strict=True)]
    stack = [BarSeries(f"part {part} of the memory", [20.4, 26.8, 38.2, 0.4], [20, 26, 38, 1]) for part in range(4)]
    names = ["a tenant with a long name", "anotherwithoutanyspacesinitsnameatall", "학교", "x"] * 2
    return [
        lines(LONG, "requests per second", "s/token", series, y_max=0.5, marks=[Mark("goal", y=0.2)]),
        lines("t", "tokens", "ms", [Series("a", [(1, 1e-4), (4096, 2e4)])], x_scale="log2", y_scale="log"),
        lines("t", "x", "y", [Series("a", [(0, 1_234_567)])], marks=[Mark("a mark at the left end", x=0)]),
        bars(LONG, "percent", SYSTEMS, stack, stacked=True),
        bars("t", "s", names, [BarSeries("alone", [0.1, 0.12, 0.9, None] * 2), BarSeries("beside", [-0.25] * 8)]),
        bars("t", "s", [f"0:{minute:02d}" for minute in range(60)], [BarSeries("tok/s", [1e6 + 1] * 60)]),
        bars("t", "s", SYSTEMS, [BarSeries("median", [0.123] * 4, spread=[(0.1, 9.0), (0.1, 0.13), None, (0.1, 0.5)])]),
        bars("t", "s", names, [BarSeries(name, [123.0] * 8, [123.0] * 8) for name in SYSTEMS]),
    ]


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=120_000)
        yield browser
        await browser.close()


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The address of a page with a wide table and all kinds of plots."""
    made = Report(LONG, LONG)
    for place, plot in enumerate(plots()):
        made.section(f"Section {place}", LONG)
        made.plot(plot, LONG)
    made.table([f"column {number}" for number in range(12)], [[f"a cell, {number}" for number in range(12)]], LONG)
    made.write(tmp_path / "report.html")
    return (tmp_path / "report.html").as_uri()


async def opened(chromium: Browser, address: str, width: int, **options: Any) -> Page:
    page = await chromium.new_page(viewport={"width": width, "height": 900}, **options)
    await page.goto(address)
    return page


def cover(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """By more than the pixel that neighbours may share."""
    return (
        min(one["right"], other["right"]) - max(one["left"], other["left"]) > 1
        and min(one["bottom"], other["bottom"]) - max(one["top"], other["top"]) > 4  # of a line's own spacing
    )


async def test_no_text_of_a_plot_is_cut_off_or_covers_another(chromium: Browser, report: str) -> None:
    page = await opened(chromium, report, 1280)
    for number, texts in enumerate(await page.evaluate(BOXES)):
        for text in texts:
            assert text["left"] >= -0.5, (number, text)
            assert text["right"] <= 760.5, (number, text)
            assert text["top"] >= -0.5, (number, text)
            assert text["bottom"] <= text["height"] + 0.5, (number, text)
        level = [text for text in texts if not text["turned"]]
        covered = [
            (one["text"], other["text"]) for one in level for other in level if one is not other and cover(one, other)
        ]
        assert not covered, number


async def test_a_page_never_scrolls_sideways_as_a_whole(chromium: Browser, report: str) -> None:
    for width in (390, 1280):
        page = await opened(chromium, report, width)
        assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_an_edge_behind_which_there_is_more_is_shaded(chromium: Browser, report: str) -> None:
    """Shades that stand still, under covers that move away with the ends of what scrolls; nothing lies over them."""
    page = await opened(chromium, report, 390)
    boxes = await page.evaluate("""() => [...document.querySelectorAll(".wide")].map(box => ({
        wider: box.scrollWidth > box.clientWidth,
        attachment: getComputedStyle(box).backgroundAttachment,
        shades: getComputedStyle(box).backgroundImage.split("linear-gradient").length - 1,
        over: [...box.querySelectorAll(".ground")].map(ground => getComputedStyle(ground).fillOpacity),
    }))""")
    assert len(boxes) == len(plots()) + 1
    for box in boxes:
        assert box["wider"]
        assert (box["attachment"], box["shades"]) == ("local, local, scroll, scroll", 4)
        assert set(box["over"]) <= {"0"}


async def test_a_page_follows_light_and_dark_and_is_light_on_paper(chromium: Browser, report: str) -> None:
    ground = """() => [getComputedStyle(document.body).backgroundColor,
                       getComputedStyle(document.querySelector("svg .ground")).fill]"""
    light, dark = (f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})" for colour in GROUNDS)
    page = await opened(chromium, report, 1280, color_scheme="light")
    assert await page.evaluate(ground) == [light, light]
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(ground) == [dark, dark]
    await page.emulate_media(color_scheme="dark", media="print")
    assert await page.evaluate(ground) == [light, light]


async def test_a_page_loads_nothing_and_has_nothing_to_complain_of(chromium: Browser, report: str) -> None:
    page = await chromium.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    await page.goto(report)
    assert requests == [report]
    assert not complaints
