"""The charts of a run: its figures passed to `placebench.page.charts`, each with its caption."""

import math
from collections.abc import Callable, Iterator
from functools import partial

from placebench import units
from placebench.page.axis_charts import Curve, PointSeries, distribution, points
from placebench.page.row_charts import Bar, Estimate, bars, forest
from placebench.page.svg import Role
from placebench.report.effects import METRIC_LABELS, detectable_text, effect_text, rough_note, verdict_text
from placebench.report.figures import TIMES, Figures, LoadFigures, VariantFigures, shorten_variant
from placebench.report.model import Chart
from placebench.stats import Comparison
from placebench.stats.verdict import FASTER, POWER, SLOWER, detection_probability

_PUBLISHED = 30
"""Replicates of a published comparison."""
_PLACES = 160
_LONGEST_SHOWN = 0.999
"""The axis of the blocks' latency ends at this share of a variant's requests: one stall would press all else flat."""
_ROLES: dict[str, Role] = {FASTER: "variant", SLOWER: "baseline"}


def steps_chart(figures: Figures) -> Chart | None:
    """Server CPU per request, service and PostgreSQL apart; median latency where CPU was not measured."""
    loads = [(each, each.closed) for each in figures.variants if each.closed]
    cpu = [
        Bar(each.label, (load.worker_cpu_s, load.backend_cpu_s), each.role)
        for each, load in loads
        if load.worker_cpu_s is not None and load.backend_cpu_s is not None
    ]
    medians = [(each, load.latency.percentiles["p50"]) for each, load in loads]
    latency = [Bar(each.label, (median,), each.role) for each, median in medians if median is not None]
    if not cpu and not latency:
        return None
    title = "Server CPU per request" if cpu else "Median latency under closed-loop load"
    svg = bars(
        cpu or latency,
        title=title,
        description="One bar for each step; shorter is better.",
        show=units.duration,
        part_names=("service (Python)", "PostgreSQL") if cpu else (),
    )
    return Chart(svg, f"{title} under closed-loop load; shorter is better." if cpu else f"{title}.")


def effects_chart(figures: Figures) -> Chart:
    """A row for each metric of a single pair; for each pair by the primary metric, with its replicates, of several."""
    several = len(figures.primaries) > 1
    rows = _pair_estimates(figures) if several else _metric_estimates(figures)
    svg = forest(
        list(rows),
        title="Effects with their confidence intervals",
        description="Ratio of variant to baseline; left of the line of no change is less, which is better.",
    )
    by = f", by {METRIC_LABELS[figures.primaries[0].metric]}" if several else ""
    return Chart(svg, f"Ratio of the variant to the baseline{by}: left of the line is less, which is better.")


def _metric_estimates(figures: Figures) -> Iterator[Estimate]:
    for each in figures.comparisons:
        if each.ratio is not None:
            yield _estimate(METRIC_LABELS[each.metric], each, each.ratio)


def _pair_estimates(figures: Figures) -> Iterator[Estimate]:
    for each in figures.primaries:
        if each.ratio is not None:
            yield _estimate(figures.names[each.baseline, each.variant], each, each.ratio, points=each.ratios)


def _estimate(label: str, made: Comparison, ratio: float, *, points: tuple[float, ...] = ()) -> Estimate:
    effect = effect_text(made)
    change = effect.partition(" [")[0]
    return Estimate(
        label=label,
        text=f"{change} · {verdict_text(made)}",
        value=ratio,
        low=made.low,
        high=made.high,
        margin=made.margin,
        role=_ROLES.get(made.verdict, "between"),
        points=points,
    )


def shown_replicates(figures: Figures) -> list[Comparison]:
    """Return what is shown replicate by replicate: both times of a single pair, the primary metric of several."""
    several = len(figures.primaries) > 1
    shown = figures.primaries if several else [each for each in figures.comparisons if each.metric in TIMES]
    return [each for each in shown if each.measured]


def replicates_chart(figures: Figures) -> Chart:
    """Both times of a single pair, replicate by replicate."""
    series = [
        PointSeries(
            METRIC_LABELS[each.metric],
            [(float(number), ratio) for number, ratio in enumerate(each.ratios, start=1)],
            "variant",
            is_ring=number > 0,
            level=each.ratio,
        )
        for number, each in enumerate(shown_replicates(figures))
    ]
    svg = points(
        series,
        title="Replicates in the order they were made",
        description="Ratio of variant to baseline of each replicate; the lines are the estimates.",
        show=None,
        show_where=_replicate_number,
    )
    return Chart(svg, "The same ratio for each replicate, in the order they were made; the lines are the estimates.")


def _replicate_number(number: float) -> str:
    return units.count(number) if number >= 1 and number == int(number) else ""


def power_chart(made: Comparison) -> Chart | None:
    """How often a true change of which size would be found; None where the replicates do not show it."""
    if not made.detectable:
        return None
    widest = max(2.2 * math.expm1(made.detectable), 1.5 * made.margin)
    curves = [Curve(f"{made.replicates} replicates, as here", _power(made, widest, made.replicates), "variant", POWER)]
    if made.replicates < _PUBLISHED:
        curves.append(Curve(f"{_PUBLISHED} replicates", _power(made, widest, _PUBLISHED), "between"))
    svg = distribution(
        curves,
        title="Power",
        description=f"The share of runs that find a true change of {METRIC_LABELS[made.metric]}, by its size.",
        show=units.percent,
        limit=(made.margin, f"margin, {units.level(made.margin)}"),
    )
    detectable = f"the minimum detectable effect is {detectable_text(made)} (the dot){rough_note([made])}"
    return Chart(
        svg, f"Power: the share of runs that find a true change of that size; at 80 % {detectable}.", id="power"
    )


def _power(made: Comparison, widest: float, replicates: int) -> list[tuple[float, float]]:
    """(change, share of runs that find it); the precision grows with the root of the replicates."""
    sharper = math.sqrt(replicates / made.replicates)
    changes = [widest * place / _PLACES for place in range(_PLACES + 1)]
    chance = partial(detection_probability, log_ratios=made.log_ratios, confidence=made.confidence)
    return [(each, chance(math.log1p(each) * sharper) or 0.0) for each in changes]


def blocks_chart(figures: Figures) -> Chart:
    """The latency of the requests in the blocks, variant by variant."""
    variants = figures.run.head.variants
    curves = [Curve(shorten_variant(each.variant, variants), each.latency.curve, each.role) for each in figures.blocks]
    ends = [each.wall_s[min(len(each.wall_s) - 1, int(_LONGEST_SHOWN * len(each.wall_s)))] for each in figures.blocks]
    svg = distribution(
        curves,
        title="Latency of the requests in the blocks",
        description="Share of the requests that took at most so long; further left is better.",
        show=units.duration,
        longest=max(ends),
    )
    return Chart(svg, "How long the requests of the blocks took, one at a time. Dots are medians.")


def latency_charts(figures: Figures) -> tuple[Chart | None, Chart | None]:
    """Latency under closed-loop and under open-loop load."""
    closed = "Closed-loop load: each user waits for a response before the next request. Dots are medians."
    opened = (
        "Open-loop load: requests arrive on a schedule, whether or not the last response has come, and are timed from "
        "when they should have started."
    )
    return (
        _latency_chart(figures, lambda each: each.closed, "Latency under closed-loop load", closed),
        _latency_chart(figures, lambda each: each.open, "Latency under open-loop load", opened),
    )


def _latency_chart(
    figures: Figures, pick: Callable[[VariantFigures], LoadFigures | None], title: str, caption: str
) -> Chart | None:
    passes = [(each, load) for each in figures.variants if (load := pick(each)) and load.requests]
    if not passes:
        return None
    svg = distribution(
        [Curve(each.label, load.latency.curve, each.role) for each, load in passes],
        title=title,
        description="Share of the requests that were served within a time; further left is better.",
        show=units.duration,
    )
    return Chart(svg, caption)
