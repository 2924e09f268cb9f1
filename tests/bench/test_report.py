"""Reports: what is drawn lies where its value says, nothing is drawn that cannot be, and a page is safe and whole."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.report.clipping import MOST_POINTS
from bench.report.plots import BarSeries, Mark, Series, bars, distribution, lines
from bench.report.svg import DARK, GROUNDS, LIGHT, width_of

HOSTILE = "<script>alert('\"&\x00')</script>"
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> Element:
    return ElementTree.fromstring(svg)


def of_class(root: Element, name: str) -> list[Element]:
    return [element for element in root.iter() if name in element.attrib.get("class", "").split()]


def place(element: Element) -> tuple[float, float]:
    """Where a shape stands."""
    x, y = re.fullmatch(r"translate\((\S+) (\S+)\)", element.attrib["transform"]).groups()  # type: ignore[union-attr]
    return float(x), float(y)


def shapes(root: Element, name: str = "point") -> list[Element]:
    """Points of the plot: those of the legend tell nothing."""
    return [shape for shape in of_class(root, name) if shape.find(f"{SVG}title") is not None]


def told(element: Element) -> str:
    return element.findtext(f"{SVG}title") or ""


def reading(root: Element, axis: str, pixel: float, even: Callable[[float], float] = lambda value: value) -> float:
    """The value at a pixel, from where the axis's first and last tick and their texts stand. ``even``: the scale."""
    ticks = of_class(root, f"{axis}-tick")
    (p1, v1), (p2, v2) = (
        # the baseline of a tick's text lies 4.5 pixels below the tick
        (float(tick.attrib[axis]) - (4.5 if axis == "y" else 0), even(float(str(tick.text).replace(",", ""))))
        for tick in (ticks[0], ticks[-1])
    )
    return v1 + (pixel - p1) / (p2 - p1) * (v2 - v1)


def read_points(root: Element, x_even: Callable[[float], float], y_even: Callable[[float], float]) -> list[list[float]]:
    return [
        [reading(root, "x", x, x_even), reading(root, "y", y, y_even)] for x, y in map(place, shapes(root, "point"))
    ]


def straight(value: float) -> float:
    return value


def test_points_lie_where_linear_axes_say() -> None:
    points = [(0.5, 0.02), (1.0, 0.3), (2.2, 0.87)]
    root = parsed(lines("t", "requests/s", "s/token", [Series("a", points)]))
    for read, point in zip(read_points(root, straight, straight), points, strict=True):
        assert read == pytest.approx(point, abs=0.005)


def test_points_lie_where_logarithmic_axes_say() -> None:
    points = [(1.0, 0.15), (16.0, 3.0), (256.0, 70.0)]
    root = parsed(lines("t", "block size", "ms", [Series("a", points)], x_scale="log2", y_scale="log"))
    for read, (x, y) in zip(read_points(root, math.log, math.log), points, strict=True):
        assert read == pytest.approx([math.log(x), math.log(y)], abs=0.02)
    assert [tick.text for tick in of_class(root, "x-tick")] == ["1", "2", "4", "8", "16", "32", "64", "128", "256"]


def test_a_lines_corners_are_its_points() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(0, 1), (1, 5), (2, 3)])]))
    [line] = root.iter(f"{SVG}polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
    assert corners == [place(shape) for shape in shapes(root)]


def test_the_papers_points_are_hollow_beside_ours() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(1, 2), (2, 3)], paper=[(1, 2.5)])]))
    hollow = shapes(root, "hollow")
    assert [told(shape) for shape in hollow] == ["a, the paper's: 1, 2.5"]
    assert reading(root, "y", place(hollow[0])[1]) == pytest.approx(2.5, abs=0.02)
    assert "the paper's" in {element.text for element in root.iter(f"{SVG}text")}


def test_a_line_that_leaves_the_axis_is_cut_there_and_its_points_beyond_stand_over_their_own_x() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(0, 0.5), (1, 1.5), (2, 7), (3, 0)])], y_max=1.0))
    gone = shapes(root, "beyond")
    assert [told(shape) for shape in gone] == ["a: 1, 1.5, beyond the axis", "a: 2, 7, beyond the axis"]
    for x, shape in zip((1, 2), gone, strict=True):
        read = reading(root, "x", place(shape)[0]), reading(root, "y", place(shape)[1])
        assert read == pytest.approx((x, 1.0), abs=0.005)
    first, second = root.iter(f"{SVG}polyline")
    corners = [
        reading(root, axis, float(pixel))
        for line in (first, second)
        for corner in line.attrib["points"].split()
        for axis, pixel in zip("xy", corner.split(","), strict=True)
    ]
    assert corners == pytest.approx([0, 0.5, 0.5, 1, 2 + 6 / 7, 1, 3, 0], abs=0.01)
    assert away(root) == [pytest.approx((0.5, 2 + 6 / 7), abs=0.01)]
    assert len(shapes(root, "point")) == 2 + 2  # the points inside, and the triangles
    assert "beyond the axis" in {element.text for element in root.iter(f"{SVG}text")}


def away(root: Element) -> list[tuple[float, float]]:
    """From which x to which x a line is beyond the axis, as is drawn along its end."""
    return [
        (reading(root, "x", float(line.attrib["x1"])), reading(root, "x", float(line.attrib["x2"])))
        for line in of_class(root, "gone")
    ]


def test_a_line_that_ends_beyond_the_axis_is_led_to_its_last_point() -> None:
    root = parsed(lines("t", "block size", "y", [Series("a", [(128, 0.5), (256, 1.5)])], x_scale="log2", y_max=1.0))
    [shape] = shapes(root, "beyond")
    assert told(shape) == "a: 256, 1.5, beyond the axis"
    assert reading(root, "x", place(shape)[0], math.log) == pytest.approx(math.log(256), abs=0.005)
    [line] = of_class(root, "gone")
    ends = [reading(root, "x", float(line.attrib[end]), math.log) for end in ("x1", "x2")]
    assert ends == pytest.approx([math.log(128) + math.log(2) / 2, math.log(256)], abs=0.01)


def test_lines_that_begin_beyond_the_axis_or_lie_there_are_marked_at_their_points() -> None:
    series = [Series("a", [(1, 9), (2, 9)]), Series("b", [(0, 9), (2, 0)]), Series("c", [(4, 9)])]
    root = parsed(lines("t", "x", "y", series, y_max=1.0))
    assert [told(shape).partition(",")[0] for shape in shapes(root, "beyond")] == ["a: 1", "a: 2", "b: 0", "c: 4"]
    assert [round(reading(root, "x", place(shape)[0]), 2) for shape in shapes(root, "beyond")] == [1, 2, 0, 4]
    assert away(root) == [pytest.approx((1, 2), abs=0.01), pytest.approx((0, 16 / 9), abs=0.01)]


def test_points_beyond_the_axis_at_one_x_are_all_seen() -> None:
    series = [Series("a", [(1, 9), (2, 0)], paper=[(1, 8)]), Series("b", [(1, 7), (2, 0)])]
    gone = shapes(parsed(lines("t", "x", "y", series, y_max=1.0)), "beyond")
    assert [told(shape) for shape in gone] == [
        "a: 1, 9, beyond the axis", "a, the paper's: 1, 8, beyond the axis", "b: 1, 7, beyond the axis",
    ]  # fmt: skip
    assert len({place(shape) for shape in gone}) == 3


def test_of_many_points_beyond_the_axis_the_greatest_is_marked() -> None:
    points = [(number, 5.0 + (number == 30)) for number in range(60)]
    for one in (Series("a", points), Series("a", points[20:40], dashed=True)):
        [shape] = shapes(parsed(lines("t", "x", "y", [one], y_max=1.0)), "beyond")
        assert told(shape) == f"a: 30, 6, beyond the axis, the greatest of {len(one.points)}"


def test_without_an_end_of_the_axis_nothing_is_beyond_it() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(0, 0.5), (1, 1e9)])]))
    assert not of_class(root, "beyond")


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("points", [[(3, 5)], [(3, 5), (3, 5)], [(8, 5), (16, 5), (32, 5)], [(1, 1)]])
def test_a_single_point_and_a_range_of_nothing_have_an_axis_around_them(scale, points) -> None:
    root = parsed(lines("t", "x", "y", [Series("a", points)], x_scale="log2", y_scale=scale))
    ys = [place(shape)[1] for shape in shapes(root)]
    assert len(ys) == len(points)
    assert reading(root, "y", ys[0], math.log if scale == "log" else straight) == pytest.approx(
        math.log(points[0][1]) if scale == "log" else points[0][1], abs=0.03
    )
    ticks = [float(str(tick.text)) for tick in of_class(root, "y-tick")]
    assert ticks[0] < ticks[-1]


def test_values_of_zero_alone_have_an_axis() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(0, 0)])]))
    assert reading(root, "y", place(shapes(root)[0])[1]) == pytest.approx(0)


finite = st.floats(-1e15, 1e15)
positive = st.floats(1e-15, 1e15)


@settings(deadline=None)
@given(points=st.lists(st.tuples(finite, finite), min_size=1, max_size=6))
def test_whatever_is_finite_lies_between_the_ends_of_linear_axes(points) -> None:
    check_inside(lines("t", "x", "y", [Series("a", points)]), len(points))


@settings(deadline=None)
@given(points=st.lists(st.tuples(positive, positive), min_size=1, max_size=6), x_scale=st.sampled_from(["log2", "log"]))
def test_whatever_is_above_nothing_lies_between_the_ends_of_logarithmic_axes(points, x_scale) -> None:
    check_inside(lines("t", "x", "y", [Series("a", points)], x_scale=x_scale, y_scale="log"), len(points))


def check_inside(svg: str, count: int) -> None:
    """Shapes lie between the axes' rules, and the ticks tell different values, rising."""
    root = parsed(svg)
    rules = of_class(root, "rule")
    xs = [float(rule.attrib["x2"]) for rule in rules] + [float(rule.attrib["x1"]) for rule in rules]
    ys = [float(rule.attrib["y2"]) for rule in rules] + [float(rule.attrib["y1"]) for rule in rules]
    places = [place(shape) for shape in shapes(root)]
    assert len(places) == count
    assert all(min(xs) - 0.1 <= x <= max(xs) + 0.1 and min(ys) - 0.1 <= y <= max(ys) + 0.1 for x, y in places)
    for axis in "xy":
        values = [float(str(tick.text).replace(",", "")) for tick in of_class(root, f"{axis}-tick")]
        assert values == sorted(set(values))
        assert values


@pytest.mark.parametrize("dashed", [False, True])
def test_a_single_point_is_seen(dashed: bool) -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(1, 1)], dashed=dashed)]))
    assert [told(shape) for shape in shapes(root)] == ["a: 1, 1"]


def test_a_series_without_points_is_said_not_to_be_measured() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(1, 1)]), Series("on a GPU", [])]))
    assert "on a GPU (not measured)" in {element.text for element in root.iter(f"{SVG}text")}
    assert len(shapes(root)) == 1


@pytest.mark.parametrize("series", [[], [Series("a", [])]])
def test_a_plot_of_nothing_is_refused(series) -> None:
    with pytest.raises(ValueError, match="no series has a point"):
        lines("t", "x", "y", series)


@pytest.mark.parametrize(
    ("point", "scale", "says"),
    [
        ((1, math.nan), "linear", "'a' at x = 1: nan is no finite number"),
        ((math.inf, 1), "linear", "x of 'a': inf is no finite number"),
        ((1, 1e300), "linear", "too large or too small"),
        ((1, 1e-300), "log", "too large or too small"),
        ((1, 0), "log", "needs values above 0"),
        ((1, -2), "log", "needs values above 0"),
    ],
)
def test_a_value_without_a_place_is_refused_by_name(point, scale, says) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        lines("t", "x", "y", [Series("a", [(1, 1), point])], y_scale=scale)


def test_an_end_of_the_axis_below_its_begin_is_refused() -> None:
    with pytest.raises(ValueError, match="give a greater end"):
        lines("t", "x", "y", [Series("a", [(1, 1)])], y_max=0)
    with pytest.raises(ValueError, match="give a greater end"):
        lines("t", "x", "y", [Series("a", [(1, 100)])], y_max=1, y_scale="log")
    with pytest.raises(ValueError, match="the end of the axis: 0 has no place"):
        lines("t", "x", "y", [Series("a", [(1, 100)])], y_max=0, y_scale="log")


def test_an_end_of_a_logarithmic_axis_leaves_its_ticks_below_it() -> None:
    root = parsed(lines("t", "x", "y", [Series("a", [(1, 1), (2, 1e9)])], y_max=30, y_scale="log"))
    assert [tick.text for tick in of_class(root, "y-tick")] == ["1", "2", "5", "10", "20"]
    assert len(shapes(root, "beyond")) == 1


def test_marks_stand_at_their_values_and_widen_the_axes() -> None:
    root = parsed(
        lines("t", "x", "y", [Series("a", [(1, 1), (2, 2)])], marks=[Mark("goal", y=8), Mark("limit lowered", x=6)])
    )
    goal, limit = of_class(root, "mark")
    assert reading(root, "y", float(goal.attrib["y1"])) == pytest.approx(8, abs=0.05)
    assert reading(root, "x", float(limit.attrib["x1"])) == pytest.approx(6, abs=0.05)
    with pytest.raises(ValueError, match="either x or y"):
        lines("t", "x", "y", [Series("a", [(1, 1)])], marks=[Mark("goal")])
    with pytest.raises(ValueError, match="lies beyond the axis"):
        lines("t", "x", "y", [Series("a", [(1, 1)])], y_max=1, marks=[Mark("goal", y=2)])


RISING, FALLING = [(0, 0.0), (5, 5.0), (10, 10.0)], [(0, 10.0), (5, 5.0), (10, 0.0)]


@pytest.mark.parametrize(
    ("series", "y", "where"),
    [
        ([Series("a", [(0, 10.0), (3, 0.0), (10, 0.0)])], 5, ("right", "above")),
        ([Series("a", [(0, 1.0), (8, 4.8), (9, 5.2), (10, 10.0)])], 5, ("left", "above")),
        ([Series("a", [(0, 4.0), (1, 6.0), (9, 6.5), (10, 4.0)])], 5, ("middle", "above")),
        ([Series("a", [(9, 5.2), (9.5, 5.2)])], 5, ("right", "below")),
        ([Series("a", RISING), Series("b", FALLING)], 9.9, ("middle", "below")),
        ([Series("a", [(0, 10.0), (10, 0.1)])], 0, ("left", "above")),
        ([Series("a", RISING), Series("b", [(0, 10.0), (10, 10.0)])], 5, ("right", "above")),
    ],
)
def test_a_marks_name_covers_no_point_and_no_line(series: list[Series], y: float, where: tuple[str, str]) -> None:
    root = parsed(lines("t", "x", "y", series, marks=[Mark("sustained below", y=y)]))
    [name] = [element for element in root.iter(f"{SVG}text") if element.text == "sustained below"]
    left, base = float(name.attrib["x"]), float(name.attrib["y"])
    right, top = left + width_of("sustained below", 11), base - 9
    for line in root.iter(f"{SVG}polyline"):
        corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
        for (x1, y1), (x2, y2) in itertools.pairwise(corners):
            for step in range(201):
                x, up = x1 + (x2 - x1) * step / 200, y1 + (y2 - y1) * step / 200
                assert not (left <= x <= right and top <= up <= base + 2)
    [mark] = of_class(root, "mark")
    assert float(mark.attrib["x1"]) <= left < right <= float(mark.attrib["x2"])
    assert all(not (left <= x <= right and top <= up <= base + 2) for x, up in map(place, shapes(root)))
    begin, end, across = (float(mark.attrib[name]) for name in ("x1", "x2", "y1"))
    found = "right" if end - right < 5 else "left" if left - begin < 5 else "middle"
    assert (found, "above" if base < across else "below") == where
    assert abs(base - across) < 14


def test_a_long_line_keeps_its_extremes_and_not_more_points_than_can_be_seen() -> None:
    count = 100_000
    points = [(index, 9.0 if index == 54_321 else 1 + math.sin(index)) for index in range(count)]
    root = parsed(lines("t", "x", "y", [Series("a", points)]))
    [line] = root.iter(f"{SVG}polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
    assert MOST_POINTS < len(corners) < 4 * 760
    assert reading(root, "y", min(y for _, y in corners)) == pytest.approx(9, abs=0.05)
    assert not shapes(root)


def test_a_distribution_rises_from_none_to_all() -> None:
    series = distribution("a", [3, 1, 2, 2])
    assert series.points == [(1, 0), (2, pytest.approx(100 / 3)), (2, pytest.approx(200 / 3)), (3, 100)]
    assert distribution("a", [5]).points == [(5, 100)]


def heights(root: Element, name: str) -> dict[str, tuple[float, float]]:
    """What each bar is told to be -> the values at its lower and upper end."""
    found = {}
    for bar in of_class(root, name):
        if bar.find(f"{SVG}title") is None:
            continue  # of the legend
        top, height = float(bar.attrib["y"]), float(bar.attrib["height"])
        found[told(bar)] = (reading(root, "y", top + height), reading(root, "y", top))
    return found


def test_bars_stand_from_nothing_to_their_value_with_the_papers_beside_them() -> None:
    root = parsed(
        bars("t", "percent", ["2", "4"], [BarSeries("beam", [37.1, 53.0], [37.56, 53.13]), BarSeries("n", [6.2, None])])
    )
    ours, paper = heights(root, "area"), heights(root, "outline")
    assert list(ours) == ["beam, 2: 37.1", "beam, 4: 53", "n, 2: 6.2"]
    assert [ours[name] for name in ours] == [pytest.approx(ends, abs=0.2) for ends in [(0, 37.1), (0, 53), (0, 6.2)]]
    assert list(paper.values()) == [pytest.approx((0, 37.56), abs=0.2), pytest.approx((0, 53.13), abs=0.2)]
    [gap] = of_class(root, "gap")
    assert told(gap) == "n, 4: not measured"
    edges = sorted(
        (float(bar.attrib["x"]), float(bar.attrib["x"]) + float(bar.attrib["width"]))
        for bar in root.iter(f"{SVG}rect")
        if bar.find(f"{SVG}title") is not None
    )
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(edges)), "no bar covers another"


def test_the_spread_of_a_bar_is_a_line_from_its_least_to_its_greatest() -> None:
    root = parsed(bars("t", "y", ["a", "b"], [BarSeries("n", [5.0, 2.0], spread=[(4.0, 9.5), None])]))
    [whisker] = of_class(root, "whisker")
    top, bottom = re.match(r"M\S+ (\S+?)V([\d.]+)M", whisker.attrib["d"]).groups()  # type: ignore[union-attr]
    assert (reading(root, "y", float(bottom)), reading(root, "y", float(top))) == pytest.approx((4, 9.5), abs=0.05)
    assert list(heights(root, "area")) == ["n, a: 5 (4 to 9.5)", "n, b: 2"]
    with pytest.raises(ValueError, match="1 values for 2 groups"):
        bars("t", "y", ["a", "b"], [BarSeries("n", [5.0, 2.0], spread=[(4.0, 9.5)])])
    with pytest.raises(ValueError, match="'n' of 'a': inf is no finite number"):
        bars("t", "y", ["a"], [BarSeries("n", [5.0], spread=[(4.0, math.inf)])])


def test_bars_below_nothing_hang_from_it() -> None:
    [(low, high)] = heights(parsed(bars("t", "y", ["a"], [BarSeries("d", [-0.5])])), "area").values()
    assert (low, high) == pytest.approx((-0.5, 0), abs=0.01)


def test_stacked_bars_add_up() -> None:
    values = {"tokens": 20.4, "reserved": 13.3, "internal": 57.3, "external": 8.9}
    root = parsed(
        bars("t", "y", ["Orca (Max)"], [BarSeries(name, [v], [v + 0.1]) for name, v in values.items()], stacked=True)
    )
    for name, more in (("area", 0.0), ("outline", 0.1)):
        ends = list(heights(root, name).values())
        low = 0.0
        for (begin, end), value in zip(ends, values.values(), strict=True):
            assert (begin, end) == pytest.approx((low, low + value + more), abs=0.3)
            low += value + more


def test_a_stack_leaves_out_what_was_not_measured() -> None:
    series = [BarSeries("a", [1.0, None]), BarSeries("b", [None, None]), BarSeries("c", [2.0, None])]
    root = parsed(bars("t", "y", ["one", "two"], series, stacked=True))
    assert list(heights(root, "area").values()) == [pytest.approx((0, 1), abs=0.02), pytest.approx((1, 3), abs=0.02)]
    assert [told(gap) for gap in of_class(root, "gap")] == ["two: not measured"]
    assert "b (not measured)" in {element.text for element in root.iter(f"{SVG}text")}


@pytest.mark.parametrize(
    ("series", "stacked", "says"),
    [
        ([], False, "no series has a value"),
        ([BarSeries("a", [None, None])], False, "no series has a value"),
        ([BarSeries("a", [1.0])], False, "1 values for 2 groups"),
        ([BarSeries("a", [1.0, 2.0], [1.0])], False, "1 values for 2 groups"),
        ([BarSeries("a", [1.0, math.nan])], False, "'a' of 'y': nan is no finite number"),
        ([BarSeries("a", [1.0, -1.0])], True, "below 0 and cannot be stacked"),
        ([BarSeries(str(number), [1.0, 1.0]) for number in range(9)], False, "draw at most 8"),
    ],
)
def test_bars_that_cannot_be_drawn_are_refused(series, stacked, says) -> None:
    with pytest.raises(ValueError, match=says):
        bars("t", "y", ["x", "y"], series, stacked=stacked)


@pytest.mark.parametrize("count", [1, 3, 12, 60, 400])
@pytest.mark.parametrize("name", ["{}", "0:{:02d}", "a tenant by the number {}", "namewithoutspaces" * 3 + "{}"])
def test_names_of_groups_stay_inside_the_plot(count: int, name: str) -> None:
    groups = [name.format(number) for number in range(count)]
    root = parsed(bars("t", "y", groups, [BarSeries("a", [1.0] * count)]))
    labels = of_class(root, "group")
    assert labels
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    assert all(0 <= float(label.attrib["x"]) <= width and float(label.attrib["y"]) < height for label in labels)


@pytest.mark.parametrize(
    "svg",
    [
        lines(HOSTILE, HOSTILE, HOSTILE, [Series(HOSTILE, [(1, 1)], [(1, 2)])], marks=[Mark(HOSTILE, x=1)]),
        bars(HOSTILE, HOSTILE, [HOSTILE], [BarSeries(HOSTILE, [1.0], [2.0])]),
    ],
    ids=["lines", "bars"],
)
def test_hostile_texts_are_texts(svg: str) -> None:
    root = parsed(svg)
    assert not list(root.iter(f"{SVG}script"))
    shown = HOSTILE.replace("\x00", "\ufffd")
    assert root.attrib["aria-label"] == root.findtext(f"{SVG}title") == shown
    assert root.attrib["role"] == "img"


# How red, green and blue are seen without one kind of cones (Machado, Oliveira and Fernandes 2009, severity 1).
SIGHT = {
    "all": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
    "no red": [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)],
    "no green": [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)],
    "no blue": [(1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)],
}


def linear(colour: str) -> list[float]:
    """The shares of red, green and blue light of an sRGB colour (IEC 61966-2-1)."""
    values = [int(colour[begin : begin + 2], 16) / 255 for begin in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def oklab(light: list[float]) -> list[float]:
    """Where a colour lies in a space in which distances are differences as seen (Ottosson 2020)."""
    mixed = [
        sum(share * min(1.0, max(0.0, part)) for share, part in zip(row, light, strict=True)) ** (1 / 3)
        for row in [
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ]
    ]
    return [
        sum(share * part for share, part in zip(row, mixed, strict=True))
        for row in [
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ]
    ]


def luminance(colour: str) -> float:
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_any_two_colours_are_apart_for_everybody(colours: tuple[str, ...], sight: str) -> None:
    seen = [
        oklab([sum(share * part for share, part in zip(row, linear(colour), strict=True)) for row in SIGHT[sight]])
        for colour in colours
    ]
    assert min(math.dist(one, other) for one, other in itertools.combinations(seen, 2)) > 0.09


@pytest.mark.parametrize(("colours", "ground"), [(LIGHT, GROUNDS[0]), (DARK, GROUNDS[1])], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_ground(colours: tuple[str, ...], ground: str) -> None:
    """WCAG 2.2, 1.4.11: a contrast of at least 3."""
    for colour in colours:
        darker, lighter = sorted((luminance(colour), luminance(ground)))
        assert (lighter + 0.05) / (darker + 0.05) >= 3, colour
