"""The charts of a run: its figures handed to `placebench.page.charts`, each with its caption.

The key piece is `drawings_of`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from placebench import units
from placebench.page.charts import (
    Bar,
    Curve,
    Hill,
    Step,
    bars,
    distribution,
    diverging,
    histogram,
)
from placebench.report.effects import Drawing, effects_drawing, power_drawing, replicates_drawing
from placebench.report.figures import Figures, Loaded, Rung
from placebench.report.frames import FrameChange
from placebench.report.pairs import Pair
from placebench.report.tried import arm_shortened
from placebench.report.words import statement_shortened

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
    """How long the requests of the blocks took, arm by arm."""


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
    arms = figures.run.head.variants
    svg = histogram(
        [Hill(arm_shortened(each.arm, arms), each.wall_s, each.role) for each in figures.walls],
        title="Latency of the requests in the blocks",
        description="A hill for each arm: how many requests took how long; further left is better.",
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
