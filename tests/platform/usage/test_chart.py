"""Bars of tokens by day."""

from datetime import date

import pytest

from pagoda.usage.chart import HEIGHT, STEP, chart
from pagoda.usage.totals import Total

FIRST, LAST = date(2025, 3, 1), date(2025, 3, 10)


def day(name, prompt, cached, output):
    return Total(name, 1, prompt, cached, output)


def test_a_bar_is_as_high_as_its_tokens_and_stands_at_its_day():
    drawn = chart([day("2025-03-02", 60, 20, 40), day("2025-03-10", 50, 0, 0)], FIRST, LAST)
    assert (drawn.width, drawn.highest) == (10 * STEP, 100)
    assert [bar.x for bar in drawn.bars] == [STEP, 9 * STEP]
    assert [sum(part.height for part in bar.parts) for bar in drawn.bars] == [HEIGHT, HEIGHT / 2]
    assert [(part.kind, part.y, part.height) for part in drawn.bars[0].parts] == [
        ("computed", 60, 40),
        ("cached", 40, 20),
        ("output", 0, 40),
    ]


@pytest.mark.parametrize(
    ("days", "first", "last"),
    [
        ([], FIRST, LAST),
        ([day("2025-03-01", 1, 0, 1)], FIRST, FIRST),
        ([day("2025-03-01", 0, 0, 0)], FIRST, LAST),
        ([day("2025-03-01", 1, 0, 1)], date(2020, 1, 1), LAST),
    ],
)
def test_nothing_is_drawn_where_there_is_nothing_to_compare(days, first, last):
    assert chart(days, first, last) is None
