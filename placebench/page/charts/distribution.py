"""How many requests were answered within which time: cumulative curves over a logarithmic axis.

The key piece is `distribution`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import Role, chart
from placebench.page.scale import Scale, linear_scale, log_scale
from placebench.page.svg import element, line, percent, picture, text

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
