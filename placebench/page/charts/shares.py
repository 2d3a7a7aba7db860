"""What a whole is made of: a bar of full length a row, in parts, with the share of each part that has room for it.

The key piece is `shares`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.legend import chart, shortened
from placebench.page.svg import element, percent, picture, text

_ROW = 58
_BASELINE = 14
_BAR_TOP = 20
_BAR_HEIGHT = 20
_SHOWN_FROM = 0.07


@dataclass(frozen=True)
class Whole:
    """One row: its parts, none of them negative, are drawn as shares of their sum."""

    label: str
    parts: tuple[float, ...]
    value: str
    """What the sum is, in words."""


def shares(rows: Sequence[Whole], *, part_names: Sequence[str], title: str, description: str) -> Markup:
    """A bar for each row, all of the same length."""
    short = shortened(row.label for row in rows)
    drawn = [_row(row, short[row.label], number * _ROW, part_names) for number, row in enumerate(rows)]
    keys = [(f"share-{number}", name) for number, name in enumerate(part_names)]
    return chart(picture(*drawn, title=title, description=description, height=_ROW * len(rows)), keys=keys)


def _row(row: Whole, name: str, top: float, part_names: Sequence[str]) -> Markup:
    return element(
        "g",
        element("title", _told(row, part_names)),
        text(name, x=0, y=top + _BASELINE, class_="label"),
        text(row.value, x=1, y=top + _BASELINE, class_="value"),
        *_parts(row, top + _BAR_TOP),
    )


def _parts(row: Whole, top: float) -> list[Markup]:
    drawn, start, whole = [], 0.0, sum(row.parts) or 1.0
    for number, part in enumerate(row.parts):
        share = part / whole
        drawn.append(
            element(
                "rect",
                x=percent(start),
                y=top,
                width=percent(share),
                height=_BAR_HEIGHT,
                class_=f"share share-{number}",
            )
        )
        if share >= _SHOWN_FROM:
            label = units.percent(share, digits=2)
            drawn.append(
                text(
                    label,
                    x=start + share / 2,
                    y=top + _BAR_HEIGHT - 6,
                    class_=f"share-value on-{number}",
                    anchor="middle",
                )
            )
        start += share
    return drawn


def _told(row: Whole, part_names: Sequence[str]) -> str:
    whole = sum(row.parts) or 1.0
    told = (f"{name} {units.percent(part / whole)}" for name, part in zip(part_names, row.parts, strict=True))
    return f"{row.label}: {row.value} ({', '.join(told)})"
