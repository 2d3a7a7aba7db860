"""Distributions: cumulative latency curves and histograms on a common axis."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from placebench import units
from placebench.page.svg import (
    Role,
    Scale,
    chart,
    element,
    line,
    linear_scale,
    log_scale,
    percent,
    picture,
    shortened,
    text,
)

_TOP = 18
_HEIGHT = 220
_AXIS = 26
_LOGARITHMIC_FROM = 4.0
_ROOM = 0.06
_VIEW = 1000


@dataclass(frozen=True)
class Curve:
    """One cumulative curve: (value, share of the samples up to it), ascending in both."""

    label: str
    points: Sequence[tuple[float, float]]
    role: Role = "between"
    marked: float = 0.5
    """The share at which a dot stands, unless it lies between others."""


def distribution(
    curves: Sequence[Curve],
    *,
    title: str,
    description: str,
    show: Callable[[float], str],
    limit: tuple[float, str] | None = None,
) -> Markup:
    """The curves on one axis, ticks written by *show*; logarithmic where the slowest takes 4 times the fastest.

    limit: a place on the axis to compare with, and its name.
    """
    drawn_last = sorted((curve for curve in curves if curve.points), key=lambda curve: curve.role != "between")
    scale = _scale([value for curve in drawn_last for value, _ in curve.points])
    shares = sorted({0.0, 0.9, 1.0, *(curve.marked for curve in curves)})
    drawn = [*_grid(scale, show, shares), *(_curve(curve, scale) for curve in drawn_last)]
    keys = _keys(curves)
    if limit:
        drawn.append(_upright(scale.place(limit[0])))
        keys.append(("no-change", limit[1]))
    return chart(picture(*drawn, title=title, description=description, height=_TOP + _HEIGHT + _AXIS), keys=keys)


def _scale(values: Sequence[float]) -> Scale:
    if not values:
        return linear_scale([0.0, 1.0])
    positive = min(values) > 0
    return (
        log_scale(values, room=_ROOM)
        if positive and max(values) / min(values) >= _LOGARITHMIC_FROM
        else linear_scale(values, room=_ROOM)
    )


def _grid(scale: Scale, show: Callable[[float], str], shares: Sequence[float]) -> list[Markup]:
    drawn = []
    for tick in scale.ticks:
        place = scale.place(tick)
        drawn.append(line(x1=place, x2=place, y1=_TOP, y2=_TOP + _HEIGHT, class_="grid"))
        drawn.append(text(units.brief(show(tick)), x=place, y=_TOP + _HEIGHT + 18, class_="tick"))
    for share in shares:
        y = _TOP + _HEIGHT * (1 - share)
        drawn.append(line(x1=0, x2=1, y1=y, y2=y, class_="grid" if share else "axis"))
        if share:
            drawn.append(text(units.level(share), x=0, y=y - 4, class_="tick", anchor="start"))
    return drawn


def _upright(place: float) -> Markup:
    return line(x1=place, x2=place, y1=_TOP, y2=_TOP + _HEIGHT, class_="no-change")


def _curve(curve: Curve, scale: Scale) -> Markup:
    """The curve in a picture of its own that is stretched to the width, its line as thick as everywhere.

    Its role has a pattern of dashes beside its colour.
    """
    stretched = element(
        "svg",
        element("path", d=_steps(curve.points, scale), class_="curve dashes", vector_effect="non-scaling-stroke"),
        x=0,
        y=_TOP,
        width="100%",
        height=_HEIGHT,
        viewBox=f"0 0 {_VIEW} {_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    return element("g", element("title", curve.label), stretched, *_mark(curve, scale), class_=f"role-{curve.role}")


def _steps(points: Sequence[tuple[float, float]], scale: Scale) -> str:
    start = f"M{scale.place(points[0][0]) * _VIEW:.1f} {_HEIGHT}"
    return start + "".join(f"H{scale.place(value) * _VIEW:.1f}V{_HEIGHT * (1 - share):.1f}" for value, share in points)


def _mark(curve: Curve, scale: Scale) -> list[Markup]:
    reached = next((value for value, share in curve.points if share >= curve.marked), None)
    if curve.role == "between" or reached is None:
        return []
    y = _TOP + _HEIGHT * (1 - curve.marked)
    return [element("circle", cx=percent(scale.place(reached)), cy=y, r=4, class_="estimate")]


def _keys(curves: Sequence[Curve]) -> list[tuple[str, str]]:
    """Both ends of the ladder by name, what lies between them in one key."""
    named = [(f"line role-{curve.role}", curve.label) for curve in curves if curve.role != "between"]
    between = [curve for curve in curves if curve.role == "between"]
    if len(between) == 1:
        return [*named, ("line role-between", between[0].label)]
    return [*named, ("line role-between", f"{len(between)} rungs between them")] if between else named


_LABEL = 14
_TOP_HISTOGRAM = 20
_HILL = 52
_ROW = _TOP_HISTOGRAM + _HILL + 6
_AXIS_HISTOGRAM = 22
_BINS = 60
_SHOWN = (0.001, 0.999)
"""The axis holds these shares of the samples: one stall of seconds would press all else into a corner."""


@dataclass(frozen=True)
class Hill:
    """The samples of one row."""

    label: str
    samples: Sequence[float]
    role: Role = "between"


@dataclass(frozen=True)
class _Seen:
    """A row with its samples in order."""

    hill: Hill
    ordered: list[float]


def histogram(rows: Sequence[Hill], *, title: str, description: str, show: Callable[[float], str]) -> Markup:
    """A row for each hill that has samples; each is as high at its top as the others, ticks written by *show*."""
    seen = [_Seen(row, sorted(row.samples)) for row in rows if row.samples]
    scale = _scale_histogram(seen)
    bottom = _ROW * len(seen)
    short = shortened(each.hill.label for each in seen)
    drawn = [
        *(
            line(x1=scale.place(tick), x2=scale.place(tick), y1=_TOP_HISTOGRAM, y2=bottom, class_="grid")
            for tick in scale.ticks
        ),
        *(_row(each, short[each.hill.label], number * _ROW, scale, show) for number, each in enumerate(seen)),
        *(text(units.brief(show(tick)), x=scale.place(tick), y=bottom + 15, class_="tick") for tick in scale.ticks),
    ]
    return chart(picture(*drawn, title=title, description=description, height=bottom + _AXIS_HISTOGRAM))


def _scale_histogram(rows: Sequence[_Seen]) -> Scale:
    ends = [row.ordered[min(len(row.ordered) - 1, int(share * len(row.ordered)))] for row in rows for share in _SHOWN]
    if not ends:
        return linear_scale([0.0, 1.0])
    wide = min(ends) > 0 and max(ends) / min(ends) >= _LOGARITHMIC_FROM
    return log_scale(ends, room=0.04) if wide else linear_scale(ends, room=0.04)


def _row(seen: _Seen, name: str, top: float, scale: Scale, show: Callable[[float], str]) -> Markup:
    middle = median(seen.ordered)
    place = scale.place(middle)
    told = f"{seen.hill.label}: median {show(middle)}, {units.count(len(seen.ordered))} requests"
    return element(
        "g",
        element("title", told),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(show(middle), x=1, y=top + _LABEL, class_="value"),
        _hill(seen.ordered, top + _TOP_HISTOGRAM, scale),
        line(x1=0, x2=1, y1=top + _TOP_HISTOGRAM + _HILL, y2=top + _TOP_HISTOGRAM + _HILL, class_="axis"),
        line(x1=place, x2=place, y1=top + _TOP_HISTOGRAM, y2=top + _TOP_HISTOGRAM + _HILL, class_="median"),
        class_=f"role-{seen.hill.role}",
    )


def _hill(ordered: Sequence[float], top: float, scale: Scale) -> Markup:
    """The outline of the bins, in a picture of its own that is stretched to the width."""
    counts = bins(ordered, scale)
    most = max(counts) or 1
    width = _VIEW / len(counts)
    steps = "".join(f"V{_HILL * (1 - count / most):.1f}h{width:.2f}" for count in counts)
    return element(
        "svg",
        element("path", d=f"M0 {_HILL}{steps}V{_HILL}Z", class_="hill", vector_effect="non-scaling-stroke"),
        x=0,
        y=top,
        width="100%",
        height=_HILL,
        viewBox=f"0 0 {_VIEW} {_HILL}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def bins(ordered: Sequence[float], scale: Scale, number: int = _BINS) -> list[int]:
    """How many samples lie in each of *number* equal pieces of the scale; what lies beyond it is in the last piece."""
    below = [bisect_right(ordered, _value(scale, place / number)) for place in range(1, number)]
    edges = [0, *below, len(ordered)]
    return [after - before for before, after in pairwise(edges)]


def _value(scale: Scale, place: float) -> float:
    if scale.logarithmic:
        return scale.low * math.exp(place * math.log(scale.high / scale.low))
    return scale.low + place * (scale.high - scale.low)
