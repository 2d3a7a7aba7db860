"""Gates on a run: `parse_gates`, `judge_gates` for its comparisons, and `raise_for_gates` for its report.

A gate passes if its condition holds for the whole confidence interval, fails if it holds for no part of it, and is
inconclusive otherwise. A count without an interval is judged by its value.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import product

from placebench import units
from placebench.errors import GateFailedError, UndecidedError, UsageError
from placebench.gates import BYTES, COUNT, SECONDS, Gate, Outcome, parse_gate
from placebench.report.effects import effect_text, needed_text, reason_text, unmeasured_text, value_text
from placebench.report.model import Check, Report
from placebench.stats import COUNTED, METRICS, PROFILED, Comparison
from placebench.stats.replicates import LIFETIME

_UNITS = {
    name: SECONDS if name.endswith("_s") else BYTES if "bytes" in name else COUNT
    for name in (*METRICS, *COUNTED, *PROFILED)
}


def parse_gates(texts: Sequence[str]) -> list[Gate]:
    """Parse the gates of a comparison; raise UsageError if a text is not a gate."""
    for text in texts:
        if re.match(r"\s*errors\b", text):
            remedy = "leave the gate out: a variant with more failed requests than its baseline always fails the run"
            raise UsageError(f"gate {text!r}: errors are not a metric; {remedy}")
    return [parse_gate(text, _UNITS, ratios=True) for text in texts]


def judge_gates(gates: Sequence[Gate], comparisons: Sequence[Comparison], variants: Sequence[str]) -> list[Check]:
    """Evaluate each gate for each of the *variants*; inconclusive if the metric or the variant was not compared.

    A variant that was compared with several baselines has a check for each of them.
    """
    made = defaultdict[tuple[str, str], list[Comparison]](list)
    for each in comparisons:
        made[each.variant, each.metric].append(each)
    checks = []
    for gate, variant in product(gates, variants):
        compared = made[variant, gate.metric]
        judged = [(each.baseline, judge_gate(gate, each)) for each in compared]
        if len(compared) > 1 and gate.is_ratio:
            checks += [replace(check, measured=f"{check.measured}; against {base}") for base, check in judged]
        else:
            checks += [check for _, check in judged[:1]]
        if not compared:
            checks.append(Check(gate.text, variant, "inconclusive", units.NOT_MEASURED))
    return checks


def judge_gate(gate: Gate, comparison: Comparison) -> Check:
    """Evaluate *gate* on the comparison of one variant by the gate's metric."""
    if not gate.is_ratio:
        outcome, measured = _judge_value(gate, comparison)
        return Check(gate.text, comparison.variant, outcome, measured)
    before, after = comparison.baseline_value, comparison.variant_value
    if gate.metric not in COUNTED or comparison.low is not None:
        outcome = gate.outcome(comparison.low, comparison.high)
    elif before is None or after is None:
        outcome = "inconclusive"
    else:  # counts that go from zero or to zero have values, but no ratio
        outcome = "passed" if replace(gate, value=gate.value * before).holds(after) else "failed"
    if not comparison.measured and None in (before, after):
        return Check(gate.text, comparison.variant, outcome, unmeasured_text(comparison))
    why = reason_text(comparison) if comparison.low is None else needed_text(comparison)
    measured = "; ".join(
        filter(None, [effect_text(comparison), why if outcome == "inconclusive" and comparison.measured else ""])
    )
    return Check(gate.text, comparison.variant, outcome, measured)


def needs_control(gate: Gate, *, is_timed: bool) -> bool:
    """Return whether a gate passes only if the control is found: one on a time, or for a counted control on a count."""
    if not is_timed:
        return gate.metric in COUNTED
    return gate.metric in METRICS and gate.metric not in LIFETIME and gate.metric.endswith("_s")


def without_control(gates: Sequence[Gate], checks: Sequence[Check], *, is_timed: bool = True) -> list[Check]:
    """Return the checks of a run that did not find its control: a gate that needs it and passed is inconclusive.

    is_timed: whether the control is a slow-down; otherwise it is one more statement.
    """
    needing = {gate.text for gate in gates if needs_control(gate, is_timed=is_timed)}
    return [
        replace(each, outcome="inconclusive", measured=f"{each.measured}; the control was not found")
        if each.outcome == "passed" and each.name in needing
        else each
        for each in checks
    ]


def with_timed_counts(gates: Sequence[Gate], checks: Sequence[Check], miscounted: Collection[str]) -> list[Check]:
    """Return the checks in which a gate on a count of the variants *miscounted* does not pass, but is inconclusive.

    miscounted: variants that send other statements while they are timed than when they are counted.
    """
    counts = {gate.text for gate in gates if gate.metric in COUNTED}
    why = "its counts are not those of the timed requests"
    return [
        replace(each, outcome="inconclusive", measured=f"{each.measured}; {why}")
        if each.outcome == "passed" and each.name in counts and each.variant in miscounted
        else each
        for each in checks
    ]


def after_failure(gates: Sequence[Gate], checks: Sequence[Check]) -> list[Check]:
    """Return the checks of a run that failed: inconclusive, except for a failed gate on a count.

    Counts are taken before any time, so that a busy machine does not excuse one statement more.
    """
    counts = {gate.text for gate in gates if gate.metric in COUNTED}
    return [
        each
        if each.outcome == "failed" and each.name in counts
        else replace(each, outcome="inconclusive", measured="the run failed")
        for each in checks
    ]


def raise_for_gates(report: Report, *, failed_only: bool = False) -> None:
    """Raise GateFailedError for the first failed gate, or else UndecidedError for the first inconclusive one.

    A control that was not found counts as an inconclusive gate. failed_only: raise no UndecidedError.
    """
    for outcome, error in (("failed", GateFailedError), ("inconclusive", UndecidedError))[: 1 if failed_only else 2]:
        for check in report.checks:
            if check.outcome == outcome and check.variant:
                gate = f"gate {check.name!r} {outcome} for {check.variant}:"
                raise error(f"{check.name if check.is_control else gate} {check.measured}")


def _judge_value(gate: Gate, comparison: Comparison) -> tuple[Outcome, str]:
    """Return the outcome of a gate on the variant's own value, and the value as text.

    If the metric has noise, the outcome is that of the whole interval.
    """
    value, low, high = comparison.variant_value, comparison.variant_low, comparison.variant_high
    if gate.metric not in METRICS:
        low = high = value
    measured = value_text(comparison.metric, value)
    if value is None:
        return "inconclusive", unmeasured_text(comparison)
    if low is None or high is None:
        return "inconclusive", f"{measured}, {reason_text(comparison)}"
    if low < high:
        limits = (value_text(comparison.metric, each) for each in (low, high))
        measured += (
            f" [{units.round_percent(comparison.confidence)} CI {', '.join(limits)}; n = {comparison.replicates}]"
        )
    return gate.outcome(low, high), measured
