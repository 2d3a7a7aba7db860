"""Gates on a run: what must hold of each variant, evaluated by `judge_gates`.

    statements > 18         a metric of any variant, per request; also <, >= and <=
    cpu_s slower 3%         a variant that is shown to be slower than the baseline by more than that; also faster
    statements more 0%      the same in the words for counts; also less

A gate says what must not be. It fails if the whole confidence interval violates it, passes if the whole interval
satisfies it, and is otherwise inconclusive. A count without an interval is decided by its mean.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placebench import units
from placebench.errors import GateFailedError, PlacebenchError, UndecidedError
from placebench.report.effects import effect_text, reason_text, value_text
from placebench.report.model import Check, Outcome, Report
from placebench.stats import COUNTED, METRICS, PROFILED, Comparison

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


def parse_gate(text: str) -> Gate:
    """Parse a gate; raises PlacebenchError for any other text or an unknown metric."""
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


def judge_gates(gates: Sequence[Gate], comparisons: Sequence[Comparison]) -> list[Check]:
    """Evaluate each gate for each variant; a metric that was not compared is inconclusive."""
    variants = dict.fromkeys(each.variant for each in comparisons)
    made = {(each.variant, each.metric): each for each in comparisons}
    return [
        judge_gate(gate, made[variant, gate.metric])
        if (variant, gate.metric) in made
        else Check(gate.text, variant, "inconclusive", units.NOT_MEASURED)
        for gate in gates
        for variant in variants
    ]


def judge_gate(gate: Gate, comparison: Comparison) -> Check:
    """Evaluate *gate* by the comparison of one variant by the gate's metric."""
    if gate.relation in _COMPARE:
        outcome, measured = _judge_value(gate, comparison)
    elif gate.metric in COUNTED and comparison.low is None:
        outcome, measured = _judge_counts(gate, comparison), effect_text(comparison)
    else:
        outcome, measured = _judge_interval(gate, comparison.low, comparison.high), effect_text(comparison)
    return Check(gate.text, comparison.variant, outcome, measured)


def raise_for_gates(report: Report) -> None:
    """Raise GateFailedError for the first check that failed, else UndecidedError for the first inconclusive one."""
    for outcome, error in (("failed", GateFailedError), ("inconclusive", UndecidedError)):
        for each in report.checks:
            if each.outcome == outcome and each.variant:
                raise error(f"gate {each.name!r} {outcome} for {each.variant}: {each.measured}")


def _judge_value(gate: Gate, comparison: Comparison) -> tuple[Outcome, str]:
    """By the variant's own value, of a metric with noise by its whole interval; with what was measured."""
    value, low, high = comparison.variant_value, comparison.variant_low, comparison.variant_high
    if gate.metric not in METRICS:
        low = high = value
    measured = value_text(comparison.metric, value)
    if value is None:
        return "inconclusive", measured
    if low is None or high is None:
        return "inconclusive", f"{measured}, {reason_text(comparison)}"
    if low < high:
        limits = (value_text(comparison.metric, each) for each in (low, high))
        measured += f" [{units.level(comparison.confidence)} CI {', '.join(limits)}; n = {comparison.replicates}]"
    violated = {_COMPARE[gate.relation](each, gate.limit) for each in (low, high)}
    return "inconclusive" if len(violated) > 1 else "failed" if True in violated else "passed", measured


def _judge_counts(gate: Gate, comparison: Comparison) -> Outcome:
    """By the values alone, from zero or to zero too."""
    before, after = comparison.baseline_value, comparison.variant_value
    if before is None or after is None:
        return "inconclusive"
    limit = gate.limit * before
    return "failed" if (after > limit if gate.relation == "more" else after < limit) else "passed"


def _judge_interval(gate: Gate, low: float | None, high: float | None) -> Outcome:
    if low is None or high is None:
        return "inconclusive"
    limit = gate.limit
    if gate.relation == "less":
        low, high, limit = 1 / high, 1 / low, 1 / limit
    if low > limit:
        return "failed"
    return "passed" if high <= limit else "inconclusive"
