"""What went both ways over time: a field for each series, one above the other on the same axis.

The key piece is `flows`. What came in stands above a field's middle line and what went out hangs below it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import Role, chart
from placebench.page.scale import Scale, linear_scale
from placebench.page.svg import element, line, picture, text

_LABEL = 14
_UP = 56
_DOWN = 30
_GAP = 14
_AXIS = 24
_FIELD = _LABEL + 6 + _UP + _DOWN + _GAP
_VIEW = 1000


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
    return chart(picture(*drawn, *ticks, title=title, description=description, height=height + _AXIS), keys=keys)


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
