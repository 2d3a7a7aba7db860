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
from placebench.compare.interval import FEWEST_REPLICATES, replicates
from placebench.compare.reduction import that_count
from placebench.compare.signed_rank import signed_rank_p
from placebench.report.words import listed
from placebench.results import Run

_AMONG_THE_OTHERS = "{} does {} among the others than alone"
_TOGETHER = "{} do {} together than each by itself adds up to"
_NONE = "No interaction was seen: changes do together what they do apart, as far as this run can tell."
_UNTOLD = "Whether there is an interaction cannot be told of {}: {}."


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


@dataclass(frozen=True)
class _Remainder:
    """What changes do together, less what they do apart; one log ratio a replicate."""

    name: str
    said: str
    log_ratios: list[float]

    @property
    def told(self) -> bool:
        return len(self.log_ratios) >= FEWEST_REPLICATES


def interactions_of(run: Run) -> list[Interaction]:
    """Where the interval of the remainder excludes 0, adjusted over all that could be told.

    Empty where no change was tried both apart and together, where the replicates are too few, and where the answers
    differ: there is no speed to be read then.
    """
    told = [each for each in _remainders(run) if each.told]
    intervals = [hodges_lehmann(each.log_ratios) for each in told]
    adjusted = benjamini_hochberg(signed_rank_p(each.log_ratios) for each in told)
    return [
        Interaction(each.name, interval.estimate, interval.low, interval.high, p, each.said)
        for each, interval, p in zip(told, intervals, adjusted, strict=True)
        if p <= 1 - interval.confidence and not interval.low <= 0 <= interval.high
    ]


def in_words(run: Run, interactions: Sequence[Interaction]) -> list[str]:
    """A sentence for each interaction, or that none was seen; then of which changes it cannot be told, and why."""
    asked = list(_remainders(run))
    untold: dict[str, list[str]] = {}
    for each in asked:
        if not each.told:
            untold.setdefault(_why_untold(run, each), []).append(each.name)
    none_seen = [_NONE] if not interactions and any(each.told for each in asked) else []
    cannot_tell = [_UNTOLD.format(listed(names), why) for why, names in untold.items()]
    return [*(f"{each}." for each in interactions), *none_seen, *cannot_tell]


def _why_untold(run: Run, asked: _Remainder) -> str:
    if not asked.log_ratios and that_count(run.blocks):
        return "server CPU was not measured"
    return f"{replicates(len(asked.log_ratios))}, {FEWEST_REPLICATES} needed"


def _remainders(run: Run) -> Iterator[_Remainder]:
    """Of everything that can be asked; nothing where the answers differ, or nobody was asked."""
    if run.head.same_answers.get("equal"):
        for name, said, whole, parts in _asked(run):
            yield _Remainder(name, said, remainder(run.blocks, whole, parts))


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
