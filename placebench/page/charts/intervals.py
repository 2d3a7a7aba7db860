"""Estimates with confidence intervals: forest plots, dot plots, and one point per replicate."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from markupsafe import Markup

from placebench import units
from placebench.page.svg import Role, Scale, chart, element, line, log_scale, percent, picture, shortened, text

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


_ROW_DOTS = 36
_MARK_DOTS = 25
_REACH_DOTS = 5
_AXIS_DOTS = 22


@dataclass(frozen=True)
class Dot:
    """One row: a value above 0, with its limits where it has any."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    role: Role = "between"


def dots(rows: Sequence[Dot], *, title: str, description: str, show: Callable[[float], str]) -> Markup:
    """A dot for each row on one scale that holds all limits, with *show* of its value beside its name."""
    scale = log_scale([place for row in rows for place in _places_dots(row)] or [1.0, 10.0], room=0.04)
    height = _ROW_DOTS * len(rows)
    short = shortened(row.label for row in rows)
    drawn = [
        *(line(x1=scale.place(tick), x2=scale.place(tick), y1=0, y2=height, class_="grid") for tick in scale.ticks),
        *(_row_dots(row, short[row.label], number * _ROW_DOTS, scale, show) for number, row in enumerate(rows)),
        *(text(units.brief(show(tick)), x=scale.place(tick), y=height + _LABEL, class_="tick") for tick in scale.ticks),
    ]
    return chart(picture(*drawn, title=title, description=description, height=height + _AXIS_DOTS))


def _places_dots(row: Dot) -> list[float]:
    return [each for each in (row.low, row.value, row.high) if each is not None]


def _row_dots(row: Dot, name: str, top: float, scale: Scale, show: Callable[[float], str]) -> Markup:
    return element(
        "g",
        element("title", f"{row.label}: {show(row.value)}"),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(show(row.value), x=1, y=top + _LABEL, class_="value"),
        line(x1=0, x2=1, y1=top + _MARK_DOTS, y2=top + _MARK_DOTS, class_="grid"),
        *whisker(row.low, row.high, top + _MARK_DOTS, scale, reach=_REACH_DOTS),
        element("circle", cx=percent(scale.place(row.value)), cy=top + _MARK_DOTS, r=4.5, class_="estimate"),
        class_=f"role-{row.role}",
    )


_TOP = 10
_HEIGHT = 170
_AXIS_SCATTER = 26
_LEFT = 0.14
_SHAPES = ("disc", "ring")


@dataclass(frozen=True)
class Cloud:
    """The ratios of one metric, one a replicate, and the estimate they gave."""

    label: str
    ratios: Sequence[float]
    estimate: float


def scatter(clouds: Sequence[Cloud], *, title: str, description: str) -> Markup:
    """The clouds over the number of the replicate, each with a shape of its own and a line at its estimate."""
    ratios = [ratio for cloud in clouds for ratio in cloud.ratios]
    scale = log_scale(ratios or [0.9, 1.1], room=0.12)
    last = max((len(cloud.ratios) for cloud in clouds), default=0)
    drawn = [
        *_grid(scale),
        *_numbers(last),
        *(_cloud(cloud, shape, scale, last) for cloud, shape in zip(clouds, cycle(_SHAPES), strict=False)),
    ]
    keys = [(f"{shape} role-variant", cloud.label) for cloud, shape in zip(clouds, cycle(_SHAPES), strict=False)]
    return chart(
        picture(*drawn, title=title, description=description, height=_TOP + _HEIGHT + _AXIS_SCATTER), keys=keys
    )


def _grid(scale: Scale) -> list[Markup]:
    drawn = []
    for tick, label in ratio_ticks(scale):
        y = _height(tick, scale)
        drawn.append(line(x1=_LEFT, x2=1, y1=y, y2=y, class_="no-change" if tick == 1 else "grid"))
        drawn.append(text(label, x=0, y=y + 4, class_="tick", anchor="start"))
    return drawn


def _numbers(last: int) -> list[Markup]:
    step = max(1, round(last / 10))
    y = _TOP + _HEIGHT + 18
    return [
        text(str(number), x=_across(number, last), y=y, class_="tick", anchor="middle")
        for number in range(1, last + 1, step)
    ]


def _cloud(cloud: Cloud, shape: str, scale: Scale, last: int) -> Markup:
    y = _height(cloud.estimate, scale)
    points = (
        _point(shape, _across(number, last), _height(ratio, scale))
        for number, ratio in enumerate(cloud.ratios, start=1)
    )
    estimate = line(x1=_LEFT, x2=1, y1=y, y2=y, class_="level")
    return element("g", element("title", cloud.label), estimate, *points, class_="role-variant")


def _point(shape: str, x: float, y: float) -> Markup:
    return element("circle", cx=percent(x), cy=y, r=4.5, class_=f"point {shape}")


def _across(number: int, last: int) -> float:
    return _LEFT + (1 - _LEFT) * (number - 0.5) / last


def _height(ratio: float, scale: Scale) -> float:
    return _TOP + _HEIGHT * (1 - scale.place(ratio))
