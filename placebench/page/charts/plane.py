"""Points by two numbers, each with its name: what is gained against what it takes.

The key piece is `plane`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import Role, chart
from placebench.page.scale import Scale, linear_scale
from placebench.page.svg import element, line, percent, picture, text

_TOP = 22
_HEIGHT = 210
_AXIS = 26
_LEFT = 0.09
_RIGHT = 0.9
_APART = 15


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
    drawn = [*_grid(across, up, show_across, show_up), *_spots(spots, told, across, up)]
    return chart(picture(*drawn, title=title, description=description, height=_TOP + _HEIGHT + _AXIS), keys=list(keys))


def _grid(
    across: Scale, up: Scale, show_across: Callable[[float], str], show_up: Callable[[float], str]
) -> list[Markup]:
    drawn = []
    for tick in up.ticks:
        y = _height(tick, up)
        drawn.append(line(x1=_LEFT, x2=1, y1=y, y2=y, class_="axis" if tick == 0 else "grid"))
        drawn.append(text(units.brief(show_up(tick)), x=0, y=y + 4, class_="tick", anchor="start"))
    for tick in across.ticks:
        place, y = _place(tick, across), _TOP + _HEIGHT + 18
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
    return _LEFT + (_RIGHT - _LEFT) * across.place(value)


def _height(value: float, up: Scale) -> float:
    return _TOP + _HEIGHT * (1 - up.place(value))
