"""A report: an HTML page in one file, for screens in light and dark and for paper, without scripts."""

from __future__ import annotations

import datetime
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import machine, versions
from bench.report.axis import number
from bench.report.svg import escape
from bench.report.theme import STYLE

Cell = str | float | bool | None
"""True and False: a goal met or missed. None: nothing there."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Content-Security-Policy: whatever stands in a page, it loads nothing and runs nothing."""
LEAST_CONTENTS = 4
"""A page with so many sections begins with a list of them."""


class Page:
    """Put together from above to below: a section, then its tables and plots.

    ``command``, ``date``, ``machine``, ``versions``: of the measurement, for the head; by default this process's.
    """

    def __init__(
        self,
        title: str,
        intro: str = "",
        *,
        command: str | None = None,
        date: str | None = None,
        machine: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._title = title
        self._intro = intro
        self._command = command
        self._date = date
        self._machine = machine
        self._versions = versions
        self._sections: list[str] = []
        self._parts: list[str] = []

    def section(self, title: str, text: str = "") -> None:
        """Begin a section. ``text``: paragraphs, with empty lines between them; `code` in backquotes."""
        self._sections.append(title)
        self._parts.append(f'<h2 id="section-{len(self._sections)}">{escape(title)}</h2>{_paragraphs(text)}')

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> None:
        """Columns of numbers (and of texts that begin with one) are aligned on the right. A float has three significant
        digits; for more give a text, such as ``exact`` and ``number`` of ``axis`` make.

        Raises:
            ValueError: a row has another number of cells than ``headers``.
        """
        for row in rows:
            if len(row) != len(headers):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(headers)} columns: {list(row)!r}")
        right = [_is_numeric([row[column] for row in rows]) for column in range(len(headers))]
        head = "".join(_cell("th", escape(name), right[column]) for column, name in enumerate(headers))
        body = "\n".join(
            f"<tr>{''.join(_cell('td', _shown(cell), right[column]) for column, cell in enumerate(row))}</tr>"
            for row in rows
        )
        title = f"<caption>{_inline(caption)}</caption>" if caption else ""
        self._parts.append(
            f'<div class="wide" tabindex="0" role="group" aria-label="{escape(caption or "table")}"><table>{title}'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    def plot(self, svg: str, caption: str = "") -> None:
        """An SVG document of ``plots``, with a text below."""
        if not svg.startswith("<svg "):
            raise ValueError(f"expected an SVG document, not {svg[:40]!r}")
        below = f"<figcaption>{_inline(caption)}</figcaption>" if caption else ""
        self._parts.append(
            f'<figure><div class="wide" tabindex="0" role="group" aria-label="plot">{svg.strip()}</div>{below}</figure>'
        )

    def html(self) -> str:
        title = escape(self._title)
        return "\n".join(
            [
                '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f'<meta name="color-scheme" content="light dark">\n<title>{title}</title>',
                f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<header><h1>{title}</h1>",
                f"{_paragraphs(self._intro)}{self._about()}</header>{self._contents()}",
                *self._parts,
                "</main>\n</body>\n</html>\n",
            ]
        )

    def write(self, path: Path | str) -> None:
        """The page, to a file. Folders on the way are made."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")

    def _about(self) -> str:
        """When, on what, with what and by which command it was measured."""
        date = self._date or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        command = self._command or shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        about = self._machine if self._machine is not None else machine()
        with_ = self._versions if self._versions is not None else versions()
        facts = {
            "Measured": escape(date.replace("T", " ").replace("+00:00", " UTC")),
            "Machine": escape(_machine_text(about)),
            "Versions": escape(", ".join(f"{name} {_short(version)}" for name, version in with_.items())),
            "Command": f"<code>{escape(command)}</code>",
        }
        return f"<dl>{''.join(f'<dt>{name}</dt><dd>{fact}</dd>' for name, fact in facts.items())}</dl>"

    def _contents(self) -> str:
        if len(self._sections) < LEAST_CONTENTS:
            return ""
        links = [
            f'<li><a href="#section-{place}">{escape(name)}</a></li>' for place, name in enumerate(self._sections, 1)
        ]
        return f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>'


def _short(version: str) -> str:
    """A commit by its first 12 digits."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{28}", r"\1", version)


def _machine_text(about: Mapping[str, Any]) -> str:
    """As ``bench.machine`` describes it, in one line."""
    parts = [str(about["cpu"])] if about.get("cpu") else []
    if about.get("cores"):
        parts.append(f"{about['cores']} cores")
    if about.get("cpu_flags"):
        parts.append(" ".join(about["cpu_flags"]))
    if about.get("memory_gib"):
        parts.append(f"{about['memory_gib']:g} GiB")
    parts.append(about.get("gpu") or "no GPU")
    return ", ".join(parts)


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return f'<span class="{"met" if cell else "missed"}">{"met" if cell else "missed"}</span>'
    if isinstance(cell, int):
        return f"{cell:,}"
    return number(cell) if isinstance(cell, float) else _inline(cell)


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """There is nothing but numbers, texts that begin with one, and gaps."""
    told = [cell for cell in cells if cell not in (None, "", "–")]
    return bool(cells) and all(
        not isinstance(cell, bool) and (not isinstance(cell, str) or re.match(r"[-+−±×<>≤≥=~]*\s?\.?\d", cell))
        for cell in told
    )


def _cell(tag: str, content: str, right: bool) -> str:
    attributes = (' scope="col"' if tag == "th" else "") + (' class="number"' if right else "")
    return f"<{tag}{attributes}>{content}</{tag}>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in re.split(r"\n\s*\n", text.strip()) if part)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
