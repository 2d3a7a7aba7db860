"""The charts of a run: its figures passed to `placebench.page.charts`, each with its caption."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from placebench import units
from placebench.page.charts import (
    Bar,
    Cloud,
    Curve,
    Effect,
    Hill,
    Role,
    Step,
    bars,
    distribution,
    diverging,
    forest,
    histogram,
    scatter,
)
from placebench.report.comparisons import ALWAYS, variant_shortened
from placebench.report.figures import Figures, Loaded, Rung
from placebench.report.sentences import METRIC_LABELS, detectable_text, outcome_text, roughly, statement_shortened
from placebench.report.variant_pairs import FrameChange, Pair
from placebench.stats import Comparison
from placebench.stats.verdict import POWER, detection_probability

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
    curves = [Curve(f"{made.replicates} replicates, as here", _power(made, widest, made.replicates), "variant", POWER)]
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
    chance = partial(detection_probability, log_ratios=made.log_ratios, confidence=made.confidence)
    return [(each, chance(math.log1p(each) * sharper) or 0.0) for each in changes]


_MOST_STEPS = 12


@dataclass(frozen=True)
class Drawings:
    """The charts of one run; None where nothing was measured that one could show."""

    ladder: Drawing | None
    effects: Drawing | None
    replicates: Drawing | None
    """None for several pairs, too: their replicates are dots in the rows of the effects."""
    power: Drawing | None
    """None for several pairs, too."""
    closed: Drawing | None
    open: Drawing | None
    blocks: Drawing | None
    """How long the requests of the blocks took, variant by variant."""


def drawings_of(figures: Figures) -> Drawings:
    """Draw everything that was measured."""
    return Drawings(
        ladder=_ladder(figures),
        effects=effects_drawing(figures) if figures.primary else None,
        replicates=replicates_drawing(figures) if len(figures.primaries) == 1 else None,
        power=power_drawing(figures.primaries[0]) if len(figures.primaries) == 1 else None,
        closed=_latencies(
            figures,
            lambda rung: rung.closed,
            title="Latency under closed load",
            caption="Closed load: each user waits for an answer before asking again. Dots are medians.",
        ),
        open=_latencies(
            figures,
            lambda rung: rung.open,
            title="Latency under open load",
            caption="Open load: requests arrive on a schedule, whether or not the last one is answered, and are timed "
            "from when they should have started.",
        ),
        blocks=_blocks(figures),
    )


def _ladder(figures: Figures) -> Drawing | None:
    """Server CPU a request, service and PostgreSQL apart; median latency where CPU was not measured."""
    made = [(rung, rung.closed) for rung in figures.rungs if rung.closed]
    cpu = [
        Bar(rung.label, (closed.worker_cpu_s, closed.backend_cpu_s), rung.role)
        for rung, closed in made
        if closed.worker_cpu_s is not None and closed.backend_cpu_s is not None
    ]
    if cpu:
        return _bars(cpu, "Server CPU per request", part_names=("service (Python)", "PostgreSQL"))
    medians = [(rung, closed.latency.quantiles["p50"]) for rung, closed in made]
    latency = [Bar(rung.label, (median,), rung.role) for rung, median in medians if median is not None]
    return _bars(latency, "Median latency under closed load") if latency else None


def _bars(rows: list[Bar], title: str, part_names: tuple[str, ...] = ()) -> Drawing:
    svg = bars(
        rows,
        title=title,
        description="One bar for each rung of the ladder; shorter is better.",
        show=units.duration,
        part_names=part_names,
    )
    return Drawing(svg, f"{title} under closed load; shorter is better." if part_names else f"{title}.")


def _blocks(figures: Figures) -> Drawing | None:
    if not figures.walls:
        return None
    variants = figures.run.head.variants
    svg = histogram(
        [Hill(variant_shortened(each.variant, variants), each.wall_s, each.role) for each in figures.walls],
        title="Latency of the requests in the blocks",
        description="A hill for each variant: how many requests took how long; further left is better.",
        show=units.duration,
    )
    return Drawing(svg, "How long the requests of the blocks took, one at a time. The lines are medians.")


def frames_drawing(pair: Pair) -> Drawing | None:
    """The frames whose own time changed most between two flames."""
    if not pair.frames:
        return None
    svg = diverging(
        [Step(_frame_label(each), each.change_s, _frame_told(each)) for each in pair.frames[:_MOST_STEPS]],
        title="Frames that got dearer or cheaper",
        description="Own time of a frame in one request of the variant, less that of the baseline.",
        show=units.step,
    )
    return Drawing(svg, "Own time in one mean request, watched by the profiler: the largest changes.")


def _frame_label(each: FrameChange) -> str:
    return statement_shortened(each.name) if each.is_sql else each.name


def _frame_told(each: FrameChange) -> str:
    return f"{each.name} ({each.place}): {units.duration(each.before_s)} → {units.duration(each.after_s)}"


def _latencies(figures: Figures, pick: Callable[[Rung], Loaded | None], *, title: str, caption: str) -> Drawing | None:
    passes = [(rung, made) for rung in figures.rungs if (made := pick(rung)) and made.requests]
    if not passes:
        return None
    svg = distribution(
        [Curve(rung.label, made.latency.curve, rung.role) for rung, made in passes],
        title=title,
        description="Share of the requests that were answered within a time; further left is better.",
        show=units.duration,
    )
    return Drawing(svg, caption)
