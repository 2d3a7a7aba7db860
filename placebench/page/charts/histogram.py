"""How often which value was seen: a hill a row on one common axis, each with the mark of its median.

The key piece is `histogram`.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import Role, chart, shortened
from placebench.page.scale import Scale, linear_scale, log_scale
from placebench.page.svg import element, line, picture, text

_LABEL = 14
_TOP = 20
_HILL = 52
_ROW = _TOP + _HILL + 6
_AXIS = 22
_BINS = 60
_VIEW = 1000
_LOGARITHMIC_FROM = 4.0
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
    scale = _scale(seen)
    bottom = _ROW * len(seen)
    short = shortened(each.hill.label for each in seen)
    drawn = [
        *(line(x1=scale.place(tick), x2=scale.place(tick), y1=_TOP, y2=bottom, class_="grid") for tick in scale.ticks),
        *(_row(each, short[each.hill.label], number * _ROW, scale, show) for number, each in enumerate(seen)),
        *(text(units.brief(show(tick)), x=scale.place(tick), y=bottom + 15, class_="tick") for tick in scale.ticks),
    ]
    return chart(picture(*drawn, title=title, description=description, height=bottom + _AXIS))


def _scale(rows: Sequence[_Seen]) -> Scale:
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
        _hill(seen.ordered, top + _TOP, scale),
        line(x1=0, x2=1, y1=top + _TOP + _HILL, y2=top + _TOP + _HILL, class_="axis"),
        line(x1=place, x2=place, y1=top + _TOP, y2=top + _TOP + _HILL, class_="median"),
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
