"""One point a replicate in the order they were made, so that a drift or an outlier is seen before it is believed.

The key piece is `scatter`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from markupsafe import Markup

from placebench.page.charts.forest import ratio_ticks
from placebench.page.charts.legend import chart
from placebench.page.scale import Scale, log_scale
from placebench.page.svg import element, line, percent, picture, text

_TOP = 10
_HEIGHT = 170
_AXIS = 26
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
    return chart(picture(*drawn, title=title, description=description, height=_TOP + _HEIGHT + _AXIS), keys=keys)


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
