"""Effects with their intervals on a scale of ratios, the line of no change, and the margins.

The key piece is `forest`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import Role, chart, shortened
from placebench.page.scale import Scale, log_scale
from placebench.page.svg import element, line, percent, picture, text

_ROW = 60
_LABEL = 14
_FIELD = 22
_FIELD_HEIGHT = 28
_MARK = _FIELD + _FIELD_HEIGHT / 2
_AXIS = 20
_REACH = 7
_CLEARLY_A_FACTOR = 1.5
_NOTHING = 1e-9
"""What a tick may miss the line of no change by."""


@dataclass(frozen=True)
class Effect:
    """One row: a ratio with its limits, where it has any, and the margin (in log ratio) fixed before the run."""

    label: str
    value: str
    """What stands at the end of the row, in words."""
    ratio: float
    low: float | None
    high: float | None
    margin: float
    role: Role = "variant"
    points: Sequence[float] = ()
    """The ratios that it was made of, in the order they came: small dots from the top of the field to its bottom."""


def forest(rows: Sequence[Effect], *, title: str, description: str) -> Markup:
    """A row for each effect on one logarithmic scale that holds all limits, all margins and no change."""
    scale = log_scale([place for row in rows for place in _places(row)] or [0.9, 1.1], room=0.06)
    short = shortened(row.label for row in rows)
    drawn = [
        *(mark for number, row in enumerate(rows) for mark in _row(row, short[row.label], number * _ROW, scale)),
        *(
            text(label, x=scale.place(tick), y=_ROW * len(rows) + 14, class_="tick")
            for tick, label in ratio_ticks(scale)
        ),
    ]
    keys = [
        ("estimate", "estimate and interval"),
        ("no-change", "no change"),
        ("margin", "margin: too small to matter"),
    ]
    if any(row.points for row in rows):
        keys.insert(1, ("mote", "one replicate, the first on top"))
    return chart(picture(*drawn, title=title, description=description, height=_ROW * len(rows) + _AXIS), keys=keys)


def ratio_ticks(scale: Scale) -> list[tuple[float, str]]:
    """The ticks of a scale of ratios, as factors on a long one and as signed changes on a short one."""
    if scale.high / scale.low > _CLEARLY_A_FACTOR:
        return [(tick, units.brief(units.times(tick))) for tick in scale.ticks]
    return [
        (tick, "0 %" if abs(tick - 1) < _NOTHING else units.brief(units.change(tick, digits=3))) for tick in scale.ticks
    ]


def whisker(low: float | None, high: float | None, y: float, scale: Scale, *, reach: float) -> list[Markup]:
    """A line from limit to limit with ends that *reach* up and down from y; nothing without limits."""
    if low is None or high is None:
        return []
    left, right = scale.place(low), scale.place(high)
    ends = [line(x1=place, x2=place, y1=y - reach, y2=y + reach, class_="whisker") for place in (left, right)]
    return [line(x1=left, x2=right, y1=y, y2=y, class_="whisker"), *ends]


def _places(row: Effect) -> list[float]:
    limits = [limit for limit in (row.low, row.high) if limit is not None]
    return [row.ratio, *row.points, *limits, math.exp(-row.margin), math.exp(row.margin)]


def _row(row: Effect, name: str, top: float, scale: Scale) -> list[Markup]:
    """Name and value above, and below them grid, margin, whisker and estimate, each over the one before."""
    grid = [_upright(tick, top, scale, class_="grid") for tick, _ in ratio_ticks(scale)]
    told = element(
        "g",
        element("title", f"{row.label}: {row.value}"),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(row.value, x=1, y=top + _LABEL, class_="value"),
        *_motes(row, top + _FIELD, scale),
        *whisker(row.low, row.high, top + _MARK, scale, reach=_REACH),
        element("circle", cx=percent(scale.place(row.ratio)), cy=top + _MARK, r=4.5, class_="estimate"),
        class_=f"role-{row.role}",
    )
    return [*grid, _margin(row, top, scale), _upright(1, top, scale, class_="no-change"), told]


def _upright(ratio: float, top: float, scale: Scale, *, class_: str) -> Markup:
    place = scale.place(ratio)
    return line(x1=place, x2=place, y1=top + _FIELD, y2=top + _FIELD + _FIELD_HEIGHT, class_=class_)


def _margin(row: Effect, top: float, scale: Scale) -> Markup:
    left, right = scale.place(math.exp(-row.margin)), scale.place(math.exp(row.margin))
    return element(
        "rect",
        x=percent(left),
        y=top + _FIELD,
        width=percent(right - left),
        height=_FIELD_HEIGHT,
        class_="margin-band",
    )


def _motes(row: Effect, top: float, scale: Scale) -> list[Markup]:
    apart = _FIELD_HEIGHT / max(1, len(row.points))
    return [
        element("circle", cx=percent(scale.place(ratio)), cy=top + (place + 0.5) * apart, r=1.7, class_="mote")
        for place, ratio in enumerate(row.points)
    ]
