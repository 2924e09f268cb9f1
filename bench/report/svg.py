"""What plots are drawn with: SVG elements, colours for light and dark, texts and how much room they take."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence

LIGHT = ("#0749df", "#bd8b15", "#1e8f82", "#922398", "#756711", "#2b97f7", "#721102", "#323953")
DARK = ("#297cb7", "#d25f15", "#22ad99", "#ff88f6", "#e5da2f", "#b1fffc", "#c3ae3e", "#9dd9af")
"""Colours of series on a light and on a dark ground: chosen by search so that any two remain apart for people who see
no red, no green or no blue, and all stand out from the ground (contrast of 3 and more; WCAG 2.2, 1.4.11)."""
GROUNDS = ("#ffffff", "#14181d")

INKS = {"ink": ("#1f2328", "#e6e9ed"), "soft": ("#57606a", "#9aa4af"), "rule": ("#dde2e7", "#2b323a")}
"""Text, quieter text, lines of the grid: in light, in dark."""

NARROW, WIDE = set("iljtfrI.,:;'|()[]! "), set("mwMW@%")

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """As it may stand in XML and HTML, in texts and attributes; characters that XML does not know are replaced."""
    return html.escape(_UNPRINTABLE.sub("�", text))


def document(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """A whole SVG document, which is also an element of an HTML page."""
    name = escape(title)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="bench-plot" viewBox="0 0 {width:g} {height:g}" '
            f'role="img" aria-label="{name}">',
            f"<title>{name}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="ground" width="{width:g}" height="{height:g}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, content: str, look: str = "", *, anchor: str = "start", turn: float = 0) -> str:
    """A line of text. ``look``: classes. ``turn``: degrees by which it is turned around its place."""
    turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{look}"{turned}>{escape(content)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, look: str = "rule") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{look}"/>'


def width_of(content: str, size: float = 13) -> float:
    """Pixels that a text takes, estimated, rather too many than too few: whose fonts it is shown in is not known."""
    return size * sum(map(_character, content))


def wrapped(content: str, width: float, size: float = 13) -> list[str]:
    """Its words in lines no wider than ``width`` pixels, but for a word that is wider itself."""
    lines: list[str] = []
    for word in content.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def _character(character: str) -> float:
    """Its width over the font's size."""
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in NARROW:
        return 0.38
    return 0.95 if character in WIDE else 0.72 if character.isupper() else 0.62


def _on(colour: str) -> str:
    """Black or white, whichever is easier to read on ``colour``."""
    channels = [int(colour[begin : begin + 2], 16) / 255 for begin in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if luminance > 0.179 else "#fff"


def _theme(dark: bool) -> str:
    """Rules of one theme. Series' colours are ``color``s, so that an element may take them as line or as area."""
    colours = DARK if dark else LIGHT
    ground = GROUNDS[dark]
    rules = [f".bench-plot .neutral{{color:{INKS['soft'][dark]}}}"]
    rules += [f".bench-plot .c{index}{{color:{colour}}}" for index, colour in enumerate(colours)]
    rules += [f".bench-plot .on{index}{{fill:{_on(colour)}}}" for index, colour in enumerate(colours)]
    rules += [f".bench-plot .{name}{{fill:{pair[dark]};stroke:none}}" for name, pair in INKS.items() if name != "rule"]
    rules.append(f".bench-plot .rule{{stroke:{INKS['rule'][dark]}}}")
    rules.append(f".bench-plot .axis,.bench-plot .mark{{stroke:{INKS['soft'][dark]}}}")
    rules.append(f".bench-plot .whisker{{fill:none;stroke:{INKS['ink'][dark]}}}")
    rules.append(f".bench-plot .ground{{fill:{ground}}}.bench-plot .hollow{{fill:{ground}}}")
    rules.append(f".bench-plot .halo{{stroke:{ground}}}.bench-plot .area{{stroke:{ground}}}")
    return "".join(rules)


STYLE = (
    ".bench-plot{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;max-width:100%}"
    ".bench-plot .head{font-size:15px;font-weight:600}.bench-plot .value{font-size:11px}"
    ".bench-plot .line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
    ".bench-plot .thin{stroke-width:1.3;stroke-dasharray:5 4}"
    ".bench-plot .point{fill:currentColor;stroke:currentColor;stroke-width:1.5}"
    ".bench-plot .area{fill:currentColor;stroke-width:1}"
    ".bench-plot .outline{fill:none;stroke:currentColor;stroke-width:1.5;stroke-dasharray:4 2}"
    ".bench-plot .mark{stroke-dasharray:2 3}"
    ".bench-plot .halo{paint-order:stroke;stroke-width:3px;stroke-linejoin:round}"
    + _theme(False)
    + f"@media screen and (prefers-color-scheme:dark){{{_theme(True)}}}"
)
