"""Charts as SVG text: each a pure function from numbers to markup, as wide as its box, read out by its title.

    bars          a bar per row: in parts, as shares of a whole, or to both sides of zero
    forest        estimates with their intervals; of ratios also the margin and the replicates
    lines         series over a number that was set
    points        points by two numbers: replicates in their order, throughput against memory
    distribution  cumulative distributions: which share of requests took how long
    flows         traffic in both directions over time, a row for each series

Colours are CSS variables by role (`baseline`, `variant`, `between`) that work light, dark and for the colour-blind;
what a colour says is also said by a label or a shape.
"""

from placebench.page.charts.axes import Curve, Line, PointSeries, Traffic, distribution, flows, lines, points
from placebench.page.charts.rows import Bar, Estimate, bars, forest
from placebench.page.svg import Role

__all__ = [
    "Bar",
    "Curve",
    "Estimate",
    "Line",
    "PointSeries",
    "Role",
    "Traffic",
    "bars",
    "distribution",
    "flows",
    "forest",
    "lines",
    "points",
]
