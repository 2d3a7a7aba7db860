"""The comparisons of a run, from its blocks and its counted passes: every arm against the first, metric by metric.

The key piece is `comparisons_of`.
"""

from collections.abc import Iterator, Sequence

from placebench.compare import (
    COUNTED,
    METRICS,
    WATCHED,
    Comparison,
    adjusted,
    compare_blocks,
    compare_counts,
    compare_watched,
)
from placebench.experiment.records import WirePass
from placebench.report.tried import tried
from placebench.results import Run

ALWAYS = ("cpu_s", "wall_s")
"""Metrics that are named even where they were not measured; the primary one first."""


def comparisons_of(run: Run) -> list[Comparison]:
    """Each pair of arms that was measured, by each metric that was, in the order they were named.

    None where the answers differ, or nobody was asked: there is no speed to be read then.
    """
    if not run.head.same_answers.get("equal"):
        return []
    confidence = float(run.head.settings.get("confidence", 0.95))
    made = (_of_pair(run, each.baseline, each.variant, confidence) for each in tried(run))
    return adjusted([each for comparisons in made for each in comparisons])


def _of_pair(run: Run, baseline: str, variant: str, confidence: float) -> Iterator[Comparison]:
    for metric in METRICS:
        made = compare_blocks(run.blocks, baseline, variant, metric, confidence=confidence)
        if made.measured or metric in ALWAYS:
            yield made
    yield from _watched(run, baseline, variant, confidence)
    before, after = run.wire.get(baseline), run.wire.get(variant)
    if before is None or after is None:
        return
    for metric in COUNTED:
        samples = _samples(before, metric), _samples(after, metric)
        if None not in samples:
            yield compare_counts(*samples, baseline, variant, metric, confidence=confidence)


def _watched(run: Run, baseline: str, variant: str, confidence: float) -> Iterator[Comparison]:
    """The collector's pauses, where either arm can tell them."""
    before, after = (made.gc_s_each if (made := run.counted.get(arm)) else [] for arm in (baseline, variant))
    if run.wire and (before or after):
        for metric in WATCHED:
            yield compare_watched(before, after, baseline, variant, metric, confidence=confidence)


def _samples(counted: WirePass, metric: str) -> Sequence[float] | None:
    samples: Sequence[float] | None = getattr(counted, metric)
    return samples
