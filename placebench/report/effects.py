"""The charts of a comparison: its effects, its replicates, and what it could have seen.

The doors are `effects_drawing`, `replicates_drawing` and `power_drawing`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from placebench import units
from placebench.compare import Comparison
from placebench.compare.verdict import FOUND, chance_to_detect
from placebench.page.charts import Cloud, Curve, Effect, Role, distribution, forest, scatter
from placebench.report.comparisons import ALWAYS
from placebench.report.figures import Figures
from placebench.report.words import METRIC_LABELS, detectable_text, outcome_text, roughly

_PUBLISHED = 30
_PLACES = 160
_ROLES: dict[str, Role] = {"faster": "variant", "slower": "baseline"}


@dataclass(frozen=True)
class Drawing:
    """A chart and the words below it."""

    svg: Markup
    caption: str


def effects_drawing(figures: Figures) -> Drawing:
    """Of one pair a row for each metric; of several a row for each pair by the primary metric, with its replicates."""
    several = len(figures.primaries) > 1
    rows = _pair_rows(figures) if several else _metric_rows(figures)
    svg = forest(
        list(rows),
        title="Effects with their intervals",
        description="Ratio of variant to baseline; left of the line of no change is less, which is better.",
    )
    metric = METRIC_LABELS[figures.primaries[0].metric]
    by = f", by {metric}" if several else ""
    return Drawing(svg, f"Ratio of the variant to the baseline{by}: left of the line is less, which is better.")


def _metric_rows(figures: Figures) -> Iterator[Effect]:
    for each in figures.comparisons:
        if each.ratio is not None:
            yield _row(METRIC_LABELS[each.metric], each, points=())


def _pair_rows(figures: Figures) -> Iterator[Effect]:
    for each in figures.primaries:
        if each.ratio is not None:
            yield _row(figures.names[each.baseline, each.variant], each, points=each.ratios)


def _row(label: str, made: Comparison, *, points: tuple[float, ...]) -> Effect:
    return Effect(
        label=label,
        value=outcome_text(made, between=" · "),
        ratio=made.ratio or 1.0,
        low=made.low,
        high=made.high,
        margin=made.margin,
        role=_ROLES.get(made.verdict, "between"),
        points=points,
    )


def replicated(figures: Figures) -> list[Comparison]:
    """What is shown replicate by replicate: both times of a single pair, of several the primary metric of each."""
    several = len(figures.primaries) > 1
    shown = figures.primaries if several else [each for each in figures.comparisons if each.metric in ALWAYS]
    return [each for each in shown if each.measured]


def replicates_drawing(figures: Figures) -> Drawing:
    """Both times of a single pair, replicate by replicate."""
    clouds = [
        Cloud(METRIC_LABELS[each.metric], each.ratios, each.ratio)
        for each in replicated(figures)
        if each.ratio is not None
    ]
    svg = scatter(
        clouds,
        title="Replicates in the order they were made",
        description="Ratio of variant to baseline of each replicate; the lines are the estimates.",
    )
    return Drawing(svg, "The same ratio for each replicate, in the order they were made; the lines are the estimates.")


def power_drawing(made: Comparison) -> Drawing | None:
    """How often a true change of which size would have been found; None where the replicates cannot say."""
    if not made.detectable:
        return None
    widest = max(2.2 * math.expm1(made.detectable), 1.5 * made.margin)
    curves = [Curve(f"{made.replicates} replicates, as here", _power(made, widest, made.replicates), "variant", FOUND)]
    if made.replicates < _PUBLISHED:
        curves.append(Curve(f"{_PUBLISHED} replicates", _power(made, widest, _PUBLISHED), "between"))
    svg = distribution(
        curves,
        title="What could have been seen",
        description=f"The share of runs that find a true change of {METRIC_LABELS[made.metric]}, by its size.",
        show=units.percent,
        limit=(made.margin, f"margin, {units.level(made.margin)}"),
    )
    seen = f"of {detectable_text(made)} in 4 of 5 (the dot){roughly([made])}"
    return Drawing(svg, f"In how many runs a true change of that size is found: {seen}.")


def _power(made: Comparison, widest: float, replicates: int) -> list[tuple[float, float]]:
    """(change, share of runs that find it); more replicates see as much more as their root."""
    sharper = math.sqrt(replicates / made.replicates)
    changes = [widest * place / _PLACES for place in range(_PLACES + 1)]
    chance = partial(chance_to_detect, log_ratios=made.log_ratios, confidence=made.confidence)
    return [(each, chance(math.log1p(each) * sharper) or 0.0) for each in changes]
