"""The plots of the reports: lines and bars, as SVG."""

from bench.report.bars import BarSeries, bars
from bench.report.lines import Mark, Series, distribution, lines

__all__ = ["BarSeries", "Mark", "Series", "bars", "distribution", "lines"]
