"""Gates: what must not be, said before a run and held against what it measured.

    statements > 18         a metric of any variant, for one request; also <, >= and <=
    cpu_s slower 3%         a variant that is shown to be slower than the baseline by more than that; also faster
    statements more 0%      the same in the words for counts; also less

The key pieces are `read_gate` and `judge`. A gate fails only where the whole interval lies beyond it, passes only where
the whole interval lies within it, and else cannot be decided: shared machines are noisy, and counts are not. A count
that has no interval is therefore decided by its value.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from placebench import results, units
from placebench.errors import GateFailedError, PlacebenchError, UndecidedError
from placebench.report import sentences
from placebench.report.comparisons import comparisons_of
from placebench.stats import COUNTED, METRICS, PROFILED, Comparison

Outcome = Literal["passed", "failed", "undecided"]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_ABSOLUTE = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*([0-9.eE+-]+)")
_RELATIVE = re.compile(r"(\w+)\s+(slower|faster|more|less)\s+([0-9.]+)\s*%")


@dataclass(frozen=True)
class Gate:
    """One thing that must not be."""

    text: str
    metric: str
    relation: str
    """>, >=, <, <=, or more or less than the baseline."""
    limit: float
    """In the metric's unit; for more and less a ratio over the baseline."""


@dataclass(frozen=True)
class Judgement:
    """How a gate stands for one variant."""

    gate: Gate
    variant: str
    outcome: Outcome
    seen: str
    """What was measured, for eyes."""


def read_gate(text: str) -> Gate:
    """The gate that *text* describes; raises PlacebenchError for any other text or an unknown metric."""
    absolute, relative = _ABSOLUTE.fullmatch(text.strip()), _RELATIVE.fullmatch(text.strip())
    found = absolute or relative
    known = (*METRICS, *COUNTED, *PROFILED)
    if found is None or found[1] not in known:
        what = f"no metric {found[1]!r}" if found else f"no gate {text!r}"
        raise PlacebenchError(
            f"{what}: expected 'METRIC > NUMBER' or 'METRIC slower PERCENT%', METRIC one of {', '.join(known)}"
        )
    try:
        number = float(found[3])
    except ValueError as error:
        raise PlacebenchError(f"{found[3]!r} in the gate {text!r} is not a number") from error
    if absolute:
        return Gate(text, found[1], found[2], number)
    if found[2] in ("slower", "more"):
        return Gate(text, found[1], "more", 1 + number / 100)
    if number >= 100:
        raise PlacebenchError(f"the gate {text!r} can never be decided: nothing is less by 100 % or more")
    return Gate(text, found[1], "less", 1 - number / 100)


def judge(gate: Gate, comparison: Comparison) -> Judgement:
    """Hold *gate* against the comparison of one variant by the gate's metric."""
    if gate.relation in _COMPARE:
        return Judgement(gate, comparison.variant, *_of_value(gate, comparison))
    if gate.metric in COUNTED and comparison.low is None:
        return Judgement(gate, comparison.variant, _of_counts(gate, comparison), sentences.effect_text(comparison))
    seen = f"{sentences.effect_text(comparison)}, {sentences.interval_text(comparison)}"
    return Judgement(gate, comparison.variant, _beyond(gate, comparison.low, comparison.high), seen)


def judgements(gates: Sequence[Gate], folder: Path) -> list[Judgement]:
    """Each gate against each variant of the run in *folder*."""
    comparisons = comparisons_of(results.load(folder))
    variants = list(dict.fromkeys(each.variant for each in comparisons))
    made = {(each.variant, each.metric): each for each in comparisons}
    missing = Comparison("", "", "", None, None, None, 0.95, 0, 0, "inconclusive", None, 0.0, "", ())
    return [
        judge(gate, made.get((variant, gate.metric), replace(missing, variant=variant, metric=gate.metric)))
        for gate in gates
        for variant in variants
    ]


def held_to(gates: Sequence[Gate], folder: Path) -> int:
    """0 when every gate passed; raises GateFailedError for the first that failed, UndecidedError for one undecided."""
    made = judgements(gates, folder)
    for outcome, error in (("failed", GateFailedError), ("undecided", UndecidedError)):
        for each in made:
            if each.outcome == outcome:
                raise error(f"gate {each.gate.text!r} {outcome} for {each.variant}: {each.seen}")
    return 0


def _of_value(gate: Gate, comparison: Comparison) -> tuple[Outcome, str]:
    """Of the variant's own value: of its whole interval where the metric has noise; with what was seen."""
    value, low, high = comparison.variant_value, comparison.variant_low, comparison.variant_high
    if gate.metric not in METRICS:
        low = high = value
    seen = sentences.value_text(comparison, value)
    if value is None:
        return "undecided", seen
    if low is None or high is None:
        return "undecided", f"{seen}, {comparison.reason}"
    if low < high:
        limits = (sentences.value_text(comparison, each) for each in (low, high))
        seen += f", {units.level(comparison.confidence)} interval {' to '.join(limits)}"
    holds = {_COMPARE[gate.relation](each, gate.limit) for each in (low, high)}
    return "undecided" if len(holds) > 1 else "failed" if True in holds else "passed", seen


def _of_counts(gate: Gate, comparison: Comparison) -> Outcome:
    """Of a change by the values alone, from zero or to zero too."""
    before, after = comparison.baseline_value, comparison.variant_value
    if before is None or after is None:
        return "undecided"
    limit = gate.limit * before
    return "failed" if (after > limit if gate.relation == "more" else after < limit) else "passed"


def _beyond(gate: Gate, low: float | None, high: float | None) -> Outcome:
    if low is None or high is None:
        return "undecided"
    limit = gate.limit
    if gate.relation == "less":
        low, high, limit = 1 / high, 1 / low, 1 / limit
    if low > limit:
        return "failed"
    return "passed" if high <= limit else "undecided"
