"""Line charts, traffic over time, and points in a plane."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


_LABEL = 14
_UP = 56
_DOWN = 30
_GAP = 14
_AXIS_FLOWS = 24
_FIELD = _LABEL + 6 + _UP + _DOWN + _GAP


@dataclass(frozen=True)
class Flow:
    """One series: amounts in bins of *bin_s* seconds from 0 on."""

    label: str
    value: str
    """What stands at the end of its first line, in words."""
    bin_s: float
    came: Sequence[float]
    went: Sequence[float]
    role: Role = "between"


def flows(
    series: Sequence[Flow], *, title: str, description: str, names: tuple[str, str], show: Callable[[float], str]
) -> Markup:
    """The series in their order; each direction has one scale for all of them. *names*: what came, what went."""
    across = linear_scale([0.0, *(_end_s(each) for each in series)] if series else [0.0, 1.0])
    most = (_most(each.came for each in series), _most(each.went for each in series))
    height = _FIELD * len(series)
    drawn = [_field(each, number * _FIELD, across, most) for number, each in enumerate(series)]
    ticks = (text(units.brief(show(tick)), x=across.place(tick), y=height + 12, class_="tick") for tick in across.ticks)
    keys = [("flow-came", names[0]), ("flow-went", names[1])]
    return chart(picture(*drawn, *ticks, title=title, description=description, height=height + _AXIS_FLOWS), keys=keys)


def _field(flow: Flow, top: float, across: Scale, most: tuple[float, float]) -> Markup:
    middle = top + _LABEL + 6 + _UP
    return element(
        "g",
        element("title", f"{flow.label}: {flow.value}"),
        text(flow.label, x=0, y=top + _LABEL, class_="label"),
        text(flow.value, x=1, y=top + _LABEL, class_="value"),
        _area(flow, flow.came, across, most[0], top=middle - _UP, height=_UP, upwards=True),
        _area(flow, flow.went, across, most[1], top=middle, height=_DOWN, upwards=False),
        line(x1=0, x2=1, y1=middle, y2=middle, class_="axis"),
        class_=f"role-{flow.role}",
    )


def _area(
    flow: Flow, bins: Sequence[float], across: Scale, most: float, *, top: float, height: float, upwards: bool
) -> Markup:
    """The bins as columns, in a picture of their own that is stretched to the width."""
    zero = height if upwards else 0.0
    steps = []
    for number, amount in enumerate(bins):
        if amount:
            left, right = (across.place(edge * flow.bin_s) * _VIEW for edge in (number, number + 1))
            tall = height * max(amount / most, 1 / height)  # a byte that came is seen
            steps.append(f"M{left:.1f} {zero:.1f}V{zero - tall if upwards else tall:.1f}H{right:.1f}V{zero:.1f}Z")
    return element(
        "svg",
        element("path", d="".join(steps), class_="flow-came" if upwards else "flow-went"),
        y=top,
        width="100%",
        height=height,
        viewBox=f"0 0 {_VIEW} {height:g}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _most(series: object) -> float:
    return max((amount for bins in series for amount in bins), default=1.0) or 1.0  # type: ignore[attr-defined]


def _end_s(flow: Flow) -> float:
    return max(len(flow.came), len(flow.went)) * flow.bin_s


_TOP_PLANE = 22
_HEIGHT_PLANE = 210
_LEFT = 0.09
_RIGHT_PLANE = 0.9


@dataclass(frozen=True)
class Spot:
    """One point."""

    label: str
    across: float
    up: float
    role: Role = "between"


def plane(
    spots: Sequence[Spot],
    *,
    title: str,
    description: str,
    show_across: Callable[[float], str],
    show_up: Callable[[float], str],
    keys: Sequence[tuple[str, str]] = (),
) -> Markup:
    """The points on linear axes from 0, ticks written by *show_across* and *show_up*; keys as in `legend`."""
    across = linear_scale([0.0, *(spot.across for spot in spots)] if spots else [0.0, 1.0])
    up = linear_scale([0.0, *(spot.up for spot in spots)] if spots else [0.0, 1.0])
    told = [f"{spot.label}: {show_up(spot.up)} at {show_across(spot.across)}" for spot in spots]
    drawn = [*_grid_plane(across, up, show_across, show_up), *_spots(spots, told, across, up)]
    return chart(
        picture(*drawn, title=title, description=description, height=_TOP_PLANE + _HEIGHT_PLANE + _AXIS),
        keys=list(keys),
    )


def _grid_plane(
    across: Scale, up: Scale, show_across: Callable[[float], str], show_up: Callable[[float], str]
) -> list[Markup]:
    drawn = []
    for tick in up.ticks:
        y = _height(tick, up)
        drawn.append(line(x1=_LEFT, x2=1, y1=y, y2=y, class_="axis" if tick == 0 else "grid"))
        drawn.append(text(units.brief(show_up(tick)), x=0, y=y + 4, class_="tick", anchor="start"))
    for tick in across.ticks:
        place, y = _place(tick, across), _TOP_PLANE + _HEIGHT_PLANE + 18
        drawn.append(text(units.brief(show_across(tick)), x=place, y=y, class_="tick", anchor="middle"))
    return drawn


def _spots(spots: Sequence[Spot], told: Sequence[str], across: Scale, up: Scale) -> list[Markup]:
    """Each with its name to the right, moved down where another one stands."""
    drawn: list[Markup] = []
    written: list[tuple[float, float]] = []
    for spot, title in sorted(zip(spots, told, strict=True), key=lambda each: (-each[0].up, each[0].across)):
        x, y = _place(spot.across, across), _height(spot.up, up)
        below = y + 4
        while any(abs(x - left) < 0.06 and abs(below - top) < _APART for left, top in written):
            below += _APART
        written.append((x, below))
        point = element("circle", cx=percent(x), cy=y, r=5, class_="point disc")
        name = text(spot.label, x=x + 0.012, y=below, class_="label named", anchor="start")
        drawn.append(element("g", element("title", title), point, name, class_=f"role-{spot.role}"))
    return drawn


def _place(value: float, across: Scale) -> float:
    return _LEFT + (_RIGHT_PLANE - _LEFT) * across.place(value)
