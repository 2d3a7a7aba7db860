"""The comparisons of a run, from its blocks and counted passes: which pairs, and their effects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from placebench.experiment.records import WirePass
from placebench.results import Run
from placebench.stats import (
    COUNTED,
    METRICS,
    PROFILED,
    Comparison,
    adjust_for_multiple_testing,
    compare_blocks,
    compare_counts,
    compare_profiled,
)

_KINDS = {"alone": "{}, alone", "leave_one_out": "{}, among the others"}


@dataclass(frozen=True)
class Tried:
    """One change, or one program held against another."""

    baseline: str
    variant: str
    name: str
    kind: str
    """rung, alone, missed or own; empty where variants were named on the command line."""

    @property
    def label(self) -> str:
        """What tells it from the others: 'slots, alone'."""
        return _KINDS.get(self.kind, "{}").format(self.name)


def tried(run: Run) -> list[Tried]:
    """The trials of an experiment, else each variant with the first, as far as both were measured; each pair once."""
    seen = {block.variant for block in run.blocks} | set(run.wire)
    if trials := run.head.settings.get("trials"):
        made = [Tried(each["baseline"], each["variant"], each["name"], each["kind"]) for each in trials]
    else:
        baseline, *others = [variant for variant in run.head.variants if variant in seen] or [""]
        made = [Tried(baseline, other, other, "") for other in others]
    first: dict[tuple[str, str], Tried] = {}
    for each in made:
        if seen.issuperset((each.baseline, each.variant)):
            first.setdefault((each.baseline, each.variant), each)
    return list(first.values())


def variant_shortened(variant: str, among: Iterable[str] = ()) -> str:
    """A variant by its first part and its last: 'naive+rows+slots+sets' → 'naive+…+sets'; others as they are.

    Where another one of *among* would be called the same it keeps as many of its last parts as tell it from them.
    """
    others = [other for other in among if other != variant]
    kept = range(1, variant.count("+") + 1)
    names = (_by_its_ends(variant, parts) for parts in kept if not _is_shared(variant, others, parts))
    return next(names, variant)


def _is_shared(variant: str, others: Sequence[str], parts: int) -> bool:
    return any(_by_its_ends(other, parts) == _by_its_ends(variant, parts) for other in others)


def _by_its_ends(variant: str, parts: int) -> str:
    head, *rest = variant.split("+")
    return variant if len(rest) <= parts else "+".join([head, "…", *rest[-parts:]])


ALWAYS = ("cpu_s", "wall_s")
"""Metrics that are named even where they were not measured; the primary one first."""


def comparisons_of(run: Run) -> list[Comparison]:
    """Each pair of variants that was measured, by each metric that was, in the order they were named.

    None where the answers differ, or nobody was asked: there is no speed to be read then.
    """
    if not run.head.same_responses.get("equal"):
        return []
    confidence = float(run.head.settings.get("confidence", 0.95))
    made = (_of_pair(run, each.baseline, each.variant, confidence) for each in tried(run))
    return adjust_for_multiple_testing([each for comparisons in made for each in comparisons])


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
    """The collector's pauses, where either variant can tell them."""
    before, after = (made.gc_s_each if (made := run.counted.get(name)) else [] for name in (baseline, variant))
    if run.wire and (before or after):
        for metric in PROFILED:
            yield compare_profiled(before, after, baseline, variant, metric, confidence=confidence)


def _samples(counted: WirePass, metric: str) -> Sequence[float] | None:
    samples: Sequence[float] | None = getattr(counted, metric)
    return samples
