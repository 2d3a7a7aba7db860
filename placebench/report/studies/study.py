"""What a survey's module returns: rows of plain values, and what makes them readable.

The key piece is `Told`; `counted` gives the measurements that count, point by point, `failed` the points that could not
be measured.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.experiment.records import Measurement
from placebench.report.comparisons import variant_shortened
from placebench.report.environment import masked
from placebench.results import Run


@dataclass(frozen=True)
class Column:
    """One column of the table that eyes see."""

    name: str
    """The key in each row."""
    label: str
    show: Callable[[Any], str] = str
    """Of `placebench.units`, for numbers; it is given None where the row has none."""


@dataclass(frozen=True)
class Picture:
    """A chart with its caption, and the heading above it."""

    heading: str
    drawn: Markup
    caption: str


@dataclass(frozen=True)
class Told:
    """A survey in words, rows and pictures."""

    headline: str
    """The first sentence: the answer, with figures and how sure they are."""
    rows: Sequence[dict[str, Any]]
    """Plain values, seconds and bytes; None is not measured. `--json` prints them as they are."""
    columns: Sequence[Column]
    pictures: Sequence[Picture] = ()
    remarks: Sequence[str] = ()
    """Further sentences about the figures, below the first."""
    reading: Sequence[str] = ()
    """How to read the table and the pictures."""
    limits: Sequence[str] = ()
    """What this survey cannot say."""
    axes: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """What a row says of its point, apart from what was measured there."""


def counted(run: Run) -> Iterator[tuple[dict[str, Any], list[Measurement]]]:
    """Each point in the order asked for, with those of its measurements that count; points without one are left out."""
    for point in run.head.settings["points"]:
        made = [each for each in run.measurements if each.invalid is None and each.point == point]
        if made:
            yield point, made


def failed(run: Run) -> Iterator[tuple[dict[str, Any], str]]:
    """Each point that could not be measured in one repeat or more, and the last reason; no secrets in it."""
    for point in run.head.settings["points"]:
        made = [each for each in run.measurements if each.point == point]
        repeats = {each.repeat for each in made if each.invalid is None}
        if reasons := [each.invalid for each in made if each.invalid and each.repeat not in repeats]:
            some = f"{len(repeats)} of {run.head.settings['repeats']} repeats count: " if repeats else ""
            yield point, some + masked(reasons[-1])


def difference(seconds: float | None) -> str:
    """A duration that may be below 0; a dash where there is nothing to be different from."""
    return "–" if seconds is None else units.duration(seconds).replace("-", "−")


def service_named(service: str, among: Iterable[str] = ()) -> str:
    """An application by the name that it was given, a rung by its two ends, other services as they are.

    among: the services that it has to be told from, as in `variant_shortened`.
    """
    given = dict(part.partition("=")[::2] for part in service.split(",")) if service.startswith("app=") else {}
    return given.get("name") or variant_shortened(masked(service), map(masked, among))
