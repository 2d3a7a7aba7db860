"""Charts as SVG text: each a pure function from numbers to markup, as wide as its box, read out by its title.

    bars          one bar a row, in parts, with its value
    forest        effects with their intervals, and the margin below which an effect does not matter
    distribution  how many requests were answered within which time
    scatter       one point a replicate, in the order they were made
    lines         series over a number that was set
    flows         what went both ways over time, a field for each series
    histogram     how often which latency was seen, a hill a row
    diverging     changes to both sides of a middle line
    shares        what a whole is made of, a bar of full length a row
    dots          values of very different size with their limits, a row each
    plane         points by two numbers, each with its name

Colours are CSS variables by role (`baseline`, `variant`, `between`) that work light, dark and for the colour-blind;
what a colour says is said by a label or a shape too.
"""

from placebench.page.charts.bars import Bar, Step, Whole, bars, diverging, shares
from placebench.page.charts.distributions import Curve, Hill, distribution, histogram
from placebench.page.charts.intervals import Cloud, Dot, Effect, dots, forest, scatter
from placebench.page.charts.lines import Flow, Line, Spot, flows, lines, plane
from placebench.page.svg import Role

__all__ = [
    "Bar",
    "Cloud",
    "Curve",
    "Dot",
    "Effect",
    "Flow",
    "Hill",
    "Line",
    "Role",
    "Spot",
    "Step",
    "Whole",
    "bars",
    "distribution",
    "diverging",
    "dots",
    "flows",
    "forest",
    "histogram",
    "lines",
    "plane",
    "scatter",
    "shares",
]
