"""What colours and shapes mean: the line of keys above a chart, as a list that wraps where the page is narrow.

The key piece is `legend`.
"""

from collections.abc import Sequence
from typing import Literal

from markupsafe import Markup

from placebench.page.svg import element

Role = Literal["baseline", "variant", "between"]
"""Which accent a series has: what is compared with, what is judged, and what lies between them."""

_LONGEST_LABEL = 34


def legend(keys: Sequence[tuple[str, str]]) -> Markup:
    """A list of (class of the swatch, label)."""
    items = (element("li", element("i", class_=f"key {class_}"), label) for class_, label in keys)
    return element("ul", *items, class_="legend")


def chart(picture: Markup, *, keys: Sequence[tuple[str, str]] = ()) -> Markup:
    """A picture with its keys above, as one block of the page."""
    return element("div", legend(keys) if keys else Markup(""), picture, class_="chart-box")


def shortened(label: str) -> str:
    """A label that leaves room for a value beside it on a phone."""
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1].rstrip() + "…"
