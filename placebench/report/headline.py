"""The first sentence of a report, and what stands right below it.

The key piece is `headline`: of one comparison its effect, interval and verdict; of several how many of them helped, and
which one has the largest effect; else why there is none.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from placebench import units
from placebench.report import sentences
from placebench.report.figures import Figures
from placebench.report.optimizations import KEPT, ledger_of
from placebench.stats import Comparison

_OUTCOMES = {
    "faster": ("{} takes less{}", "{} take less{}"),
    "slower": ("{} takes more{}", "{} take more{}"),
    "below the margin": ("{} makes a small difference", "{} make a small difference"),
    "equivalent": ("{} makes no difference that matters", "{} make no difference that matters"),
    "inconclusive": ("{} cannot be told", "{} cannot be told"),
    units.NOT_MEASURED: ("of {}{} was not measured", "of {}{} was not measured"),
}
"""By verdict, of one and of several: who, and how much of what."""
_FEW = 4
"""Programs that are told one by one: as many as `perfload` holds against naive."""
_COUNT = "statements"
_ENDED = {"interrupted": "was interrupted", "failed": "failed", "running": "has not come to its end"}


def headline(figures: Figures) -> str:
    """The first sentence, ending with a full stop."""
    if figures.answers.equal is False:
        return sentences.DIFFERENT_ANSWERS
    if figures.primary is None:
        return _untimed(figures)
    if len(figures.primaries) == 1:
        return sentences.comparison_sentence(figures.primary)
    if figures.changes:
        return several_sentence(figures.primaries, figures.names, many=_changes(figures))
    variants = f"{units.count(len(figures.primaries))} variants"
    return several_sentence(figures.primaries, figures.names, many=variants, held=f" than {figures.primary.baseline}")


def _changes(figures: Figures) -> str:
    """'10 changes'; where changes were tried more than once, '20 trials of 10 changes'."""
    trials, names = len(figures.primaries), {each.name for each in figures.tried}
    changes = f"{units.count(len(names))} change{'s' if len(names) > 1 else ''}"
    return changes if len(names) == trials else f"{units.count(trials)} trials of {changes}"


def _untimed(figures: Figures) -> str:
    """Of a run that measured no time: what was counted, or how it ended before that."""
    if how := _ENDED.get(figures.run.head.status):
        return f"This run {how} before two variants were compared."
    counted = [each for each in figures.comparisons if each.metric == _COUNT and each.variant_value is not None]
    if not counted:
        return "This run compared no two variants."
    if len(counted) > _FEW:
        return f"Of one request {units.count(len(counted))} pairs were counted; no time was measured."
    asked = (
        f"{each.variant} asks {units.average(each.variant_value)} statements where {each.baseline} asks "
        f"{units.average(each.baseline_value)}"
        for each in counted
    )
    return f"For one request {sentences.listed(list(asked))}; no time was measured."


def below_it(figures: Figures) -> list[str]:
    """What the first sentence leaves out: from end to end, or each of a few variants; and what could have been seen."""
    if figures.primary is None:
        return []
    if len(figures.primaries) == 1:
        others = [each for each in figures.comparisons if each.measured and each.metric == "wall_s"]
        said = [sentences.comparison_sentence(each) for each in others if each is not figures.primary]
    else:
        few = figures.primaries if len(figures.primaries) <= _FEW else ()
        said = [sentences.comparison_sentence(each) for each in ([figures.ends] if figures.ends else few)]
        said += worth_keeping(figures) if figures.changes else []
    said += filter(None, [sentences.unmeasured(figures.run.head)])
    return [*said, f"For {sentences.METRIC_LABELS[figures.primary.metric]}, {power_sentence(figures.primaries)}."]


def worth_keeping(figures: Figures) -> list[str]:
    """What the ledger keeps, the largest effect first; where both is known, by what it does among the others."""
    missed = any(each.kind == "leave_one_out" for each in figures.tried)
    kept = [each for each in ledger_of(figures.run, figures.comparisons) if each.decision == KEPT]
    ordered = sorted(kept, key=lambda each: each.ratio or 1.0)
    names = list(dict.fromkeys(each.name for each in ordered if not missed or each.kind != "alone"))
    return [f"Worth keeping here, the largest effect first: {sentences.listed(names)}."] if names else []


def several_sentence(
    primaries: Sequence[Comparison], names: Mapping[tuple[str, str], str], *, many: str, held: str = ""
) -> str:
    """'Of 10 changes 6 take less server CPU and 4 cannot be told; the largest effect is that of slots: 12 % less …'.

    many: how many of what they are. held: what all are held against, where that is one program.
    """
    metric = primaries[0].metric
    seen = Counter(sentences.verdict_text(each) for each in primaries)
    amount = f" {sentences.thing(metric)}{held}"
    amounts = {
        "faster": amount,
        "slower": "" if seen["faster"] else amount,
        units.NOT_MEASURED: f" {sentences.METRIC_LABELS[metric]}",
    }
    verdicts = [each for each in _OUTCOMES if seen[each]]
    who = {each: units.count(seen[each]) if len(verdicts) > 1 else f"all {many}" for each in verdicts}
    told = [_OUTCOMES[each][seen[each] > 1].format(who[each], amounts.get(each, "")) for each in verdicts]
    outcome = f"Of {many} {sentences.listed(told)}" if len(told) > 1 else f"{told[0][0].upper()}{told[0][1:]}"
    return f"{'; '.join([outcome, *_largest(primaries, names)])}."


def largest_of(primaries: Sequence[Comparison]) -> Comparison | None:
    """The comparison with the largest effect among those whose interval excludes no change; None where none does."""
    decided = [each for each in primaries if each.ratio and each.verdict in ("faster", "slower", "below the margin")]
    return max(decided, key=lambda each: abs(math.log(each.ratio or 1.0)), default=None)


def power_sentence(primaries: Sequence[Comparison]) -> str:
    """What the comparisons could have seen, from the sharpest to the bluntest."""
    seen = sorted((each for each in primaries if each.detectable is not None), key=lambda each: each.detectable or 0.0)
    if not seen:
        return sentences.power_text(primaries[0])
    least, most = (sentences.detectable_text(each) for each in (seen[0], seen[-1]))
    effects = least if most == least else f"{least} to {most}"
    return f"the smallest effect that it could have seen is about {effects}{sentences.roughly(seen)}"


def _largest(primaries: Sequence[Comparison], names: Mapping[tuple[str, str], str]) -> list[str]:
    """The largest effect; where there is none, why, as far as that can be told."""
    measured = [each for each in primaries if each.measured]
    largest = largest_of(measured)
    if largest is None:
        if all(each.verdict == "equivalent" for each in measured):
            return ["no effect reaches its margin"]
        return [each.reason.removeprefix("inconclusive: ") for each in measured if each.low is None][:1]
    evidence = f"{sentences.interval_text(largest)}; {units.count(largest.replicates)} replicates"
    name = names[largest.baseline, largest.variant]
    return [f"the largest effect is that of {name}: {sentences.effect_text(largest)} ({evidence}): {largest.verdict}"]
