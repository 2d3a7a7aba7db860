"""What colours and shapes mean: the line of keys above a chart, as a list that wraps where the page is narrow.

The key piece is `legend`.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
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


def shortened(labels: Iterable[str]) -> dict[str, str]:
    """Each label as what leaves room for a value beside it on a phone; labels that differ do so when they are short.

    A long one is cut in its middle, for names often differ at an end; those that do not, from where they differ.
    """
    alike: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        alike.setdefault(_cut(label), []).append(label)
    made: dict[str, str] = {}
    for short, found in alike.items():
        made |= {found[0]: short} if len(found) == 1 else _told_apart(found)
    return made


def _cut(label: str) -> str:
    if len(label) <= _LONGEST_LABEL:
        return label
    half = (_LONGEST_LABEL - 1) // 2
    return f"{label[:half]}…{label[half + 1 - _LONGEST_LABEL :]}"


def _told_apart(labels: Sequence[str]) -> dict[str, str]:
    """Labels whose ends are the same, without what they begin with alike."""
    same = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*labels, strict=False))))
    rest = shortened(label[same:] for label in labels)
    return {label: f"…{rest[label[same:]]}" for label in labels}
