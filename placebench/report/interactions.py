"""Do the changes of an experiment add up? Those that do something else together than each by itself, by name.

The key pieces are `interactions_of` and `in_words`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placebench import units
from placebench.compare import hodges_lehmann
from placebench.compare.family import benjamini_hochberg
from placebench.compare.interaction import Pair, remainder
from placebench.compare.signed_rank import signed_rank_p
from placebench.errors import TooFewReplicatesError
from placebench.results import Run

_AMONG_THE_OTHERS = "{} does {} among the others than alone"
_TOGETHER = "{} do {} together than each by itself adds up to"
_NONE = "No interaction was seen: changes do together what they do apart, as far as this run can tell."


@dataclass(frozen=True)
class Interaction:
    """Changes that do something else together than apart; log ratios, below 0 is more gain than apart."""

    name: str
    estimate: float
    low: float
    high: float
    p_adjusted: float
    said: str = _AMONG_THE_OTHERS

    def __str__(self) -> str:
        """'Slots does more among the others than alone: 33 % less server CPU (95 % interval 32 % to 34 %)'."""
        more = self.estimate < 0
        low, high = sorted(abs(math.expm1(each)) for each in (self.low, self.high))
        change = f"{units.percent(abs(math.expm1(self.estimate)), digits=2)} {'less' if more else 'more'} server CPU"
        limits = f"95 % interval {units.percent(low, digits=2)} to {units.percent(high, digits=2)}"
        told = self.said.format(self.name, "more" if more else "less")
        return f"{told[0].upper()}{told[1:]}: {change} ({limits})"


def interactions_of(run: Run) -> list[Interaction]:
    """Where the interval of the remainder excludes 0, adjusted over all that could be asked.

    Empty where no change was tried both apart and together, or the replicates are too few to tell.
    """
    found = []
    for name, said, whole, parts in _asked(run):
        left = remainder(run.blocks, whole, parts)
        try:
            found.append((name, said, hodges_lehmann(left), signed_rank_p(left)))
        except TooFewReplicatesError:
            return []
    adjusted = benjamini_hochberg(p for *_, p in found)
    return [
        Interaction(name, interval.estimate, interval.low, interval.high, p, said)
        for (name, said, interval, _), p in zip(found, adjusted, strict=True)
        if p <= 1 - interval.confidence and not interval.low <= 0 <= interval.high
    ]


def in_words(run: Run, interactions: Sequence[Interaction]) -> list[str]:
    """A sentence for each interaction; one that says so where none was seen; none where nothing could be."""
    if not any(True for _ in _asked(run)):
        return []
    return [f"{each}." for each in interactions] or [_NONE]


def _asked(run: Run) -> Iterator[tuple[str, str, Pair, list[Pair]]]:
    """Name, words, the whole and its parts: each change alone and missed; all of them; two at once and each alone."""
    trials = run.head.settings.get("trials", ())
    pairs = {(each["name"], each["kind"]): (each["baseline"], each["variant"]) for each in trials}
    twice = [name for name, kind in pairs if kind == "missed" and (name, "alone") in pairs]
    for name in twice:
        yield name, _AMONG_THE_OTHERS, pairs[name, "missed"], [pairs[name, "alone"]]
    if len(twice) > 1:
        alone = [pairs[name, "alone"] for name in twice]
        yield "all changes", _TOGETHER, (alone[0][0], pairs[twice[0], "missed"][1]), alone
    yield from _combined([pair for (_, kind), pair in pairs.items() if kind == "own"])


def _combined(pairs: Sequence[Pair]) -> Iterator[tuple[str, str, Pair, list[Pair]]]:
    """Arms such as tuned+a+b, where tuned+a and tuned+b were held against tuned as well."""
    single = {(pair[0], added[0]): pair for pair in pairs if len(added := _added(*pair)) == 1}
    for baseline, arm in pairs:
        parts = [(baseline, part) for part in _added(baseline, arm)]
        if len(parts) > 1 and all(part in single for part in parts):
            yield " and ".join(part for _, part in parts), _TOGETHER, (baseline, arm), [single[part] for part in parts]


def _added(baseline: str, arm: str) -> list[str]:
    """What *arm* has more than *baseline*, by name: 'tuned+a+b' has a and b."""
    return arm.removeprefix(f"{baseline}+").split("+") if arm.startswith(f"{baseline}+") else []
