"""Lines over a number that was set: one a series, each with its name at its end.

The key piece is `lines`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import Role, chart, shortened
from placebench.page.scale import Scale, linear_scale, log_scale
from placebench.page.svg import element, line, percent, picture, text

_TOP = 18
_HEIGHT = 240
_AXIS = 26
_RIGHT = 0.86
_VIEW = 1000
_APART = 15
_FITS_BESIDE = 8
"""So many letters have room between the end of the lines and that of a screen of 360 pixels."""


@dataclass(frozen=True)
class Line:
    """One series: (where, value), ascending in the first."""

    label: str
    points: Sequence[tuple[float, float]]
    role: Role = "between"


def lines(
    series: Sequence[Line],
    *,
    title: str,
    description: str,
    show: Callable[[float], str],
    show_where: Callable[[float], str],
    logarithmic: bool = False,
) -> Markup:
    """The series on linear axes, the upright one from 0; *show* writes its ticks, *show_where* those of the other.

    logarithmic: equal factors are equal lengths on both axes, for positive numbers.
    """
    made = [each for each in series if each.points]
    wheres = [where for each in made for where, _ in each.points] or [1.0, 10.0]
    values = [value for each in made for _, value in each.points] or [1.0, 10.0]
    across = log_scale(wheres) if logarithmic else linear_scale(wheres)
    up = log_scale(values, room=0.04) if logarithmic else linear_scale([0.0, *values])
    drawn = [*_grid(across, up, show, show_where), *(_series(each, across, up) for each in made)]
    names = _names(made, up)
    return chart(picture(*drawn, *names, title=title, description=description, height=_TOP + _HEIGHT + _AXIS))


def _grid(across: Scale, up: Scale, show: Callable[[float], str], show_where: Callable[[float], str]) -> list[Markup]:
    drawn = []
    for tick in up.ticks:
        y = _height(tick, up)
        drawn.append(line(x1=0, x2=_RIGHT, y1=y, y2=y, class_="axis" if tick == 0 else "grid"))
        if tick:
            drawn.append(text(units.brief(show(tick)), x=0, y=y - 4, class_="tick", anchor="start"))
    for tick in across.ticks:
        x = across.place(tick) * _RIGHT
        drawn.append(text(units.brief(show_where(tick)), x=x, y=_TOP + _HEIGHT + 18, class_="tick"))
    return drawn


def _series(series: Line, across: Scale, up: Scale) -> Markup:
    """The line in a picture of its own that is stretched to the width, and a dot at each point."""
    path = "L".join(f"{across.place(where) * _VIEW:.1f} {_height(value, up):.1f}" for where, value in series.points)
    stretched = element(
        "svg",
        element("path", d=f"M{path}", class_="curve", vector_effect="non-scaling-stroke"),
        width=percent(_RIGHT),
        height=_TOP + _HEIGHT,
        viewBox=f"0 0 {_VIEW} {_TOP + _HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    dots = (
        element("circle", cx=percent(across.place(where) * _RIGHT), cy=_height(value, up), r=3, class_="point disc")
        for where, value in series.points
    )
    return element("g", element("title", series.label), stretched, *dots, class_=f"role-{series.role}")


def _names(made: Sequence[Line], up: Scale) -> list[Markup]:
    """Each at the end of its line, moved down where another one stands; a long one reaches back over the lines."""
    short, drawn, free = shortened(each.label for each in made), [], 0.0
    for each in sorted(made, key=lambda each: -each.points[-1][1]):
        y = max(_height(each.points[-1][1], up) + 4, free)
        free = y + _APART
        x, anchor = (_RIGHT + 0.015, "start") if len(each.label) <= _FITS_BESIDE else (1.0, "end")
        name = text(short[each.label], x=x, y=y, class_="label named", anchor=anchor)
        drawn.append(element("g", element("title", each.label), name, class_=f"role-{each.role}"))
    return drawn


def _height(value: float, up: Scale) -> float:
    return _TOP + _HEIGHT * (1 - up.place(value))
