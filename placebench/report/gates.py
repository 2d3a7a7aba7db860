"""What a run says of its gates: `judge_run` compares each with what was measured, `check_gates` raises what failed.

A gate passes only where it holds for the whole confidence interval, fails only where it holds for none of it, and is
inconclusive else: shared machines are noisy, and counts are not. A count without an interval is decided by its value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placebench import results, units
from placebench.errors import GateFailedError, UndecidedError
from placebench.gates import BYTES, COUNT, SECONDS, Gate, Outcome, parse_gate
from placebench.report import sentences
from placebench.report.comparisons import comparisons_of
from placebench.stats import COUNTED, METRICS, PROFILED, Comparison

_UNITS = {
    name: SECONDS if name.endswith("_s") else BYTES if "bytes" in name else COUNT
    for name in (*METRICS, *COUNTED, *PROFILED)
}


@dataclass(frozen=True)
class Judgement:
    """The outcome of a gate for one variant."""

    gate: Gate
    variant: str
    outcome: Outcome
    seen: str
    """What was measured, as text."""


def parse_gates(texts: Sequence[str]) -> list[Gate]:
    """The gates of a comparison; raises UsageError for a text that is none."""
    return [parse_gate(text, _UNITS, ratios=True) for text in texts]


def judge(gate: Gate, comparison: Comparison) -> Judgement:
    """Compare *gate* with what was measured of its metric for one variant."""
    if not gate.is_ratio:
        return Judgement(gate, comparison.variant, *_judge_value(gate, comparison))
    if gate.metric in COUNTED and comparison.low is None:
        return Judgement(gate, comparison.variant, _judge_counts(gate, comparison), sentences.effect_text(comparison))
    seen = f"{sentences.effect_text(comparison)}, {sentences.interval_text(comparison)}"
    return Judgement(gate, comparison.variant, gate.outcome(comparison.low, comparison.high), seen)


def judge_run(gates: Sequence[Gate], folder: Path) -> list[Judgement]:
    """Each gate for each variant of the run in *folder*."""
    comparisons = comparisons_of(results.load(folder))
    variants = list(dict.fromkeys(each.variant for each in comparisons))
    made = {(each.variant, each.metric): each for each in comparisons}
    missing = Comparison("", "", "", None, None, None, 0.95, 0, 0, "inconclusive", None, 0.0, "", ())
    return [
        judge(gate, made.get((variant, gate.metric), replace(missing, variant=variant, metric=gate.metric)))
        for gate in gates
        for variant in variants
    ]


def check_gates(gates: Sequence[Gate], folder: Path) -> None:
    """Raise GateFailedError for the first gate that failed, or UndecidedError for the first inconclusive one."""
    judgements = judge_run(gates, folder)
    for outcome, error in (("failed", GateFailedError), ("inconclusive", UndecidedError)):
        for each in judgements:
            if each.outcome == outcome:
                raise error(f"gate {each.gate.text!r} {outcome} for {each.variant}: {each.seen}")


def _judge_value(gate: Gate, comparison: Comparison) -> tuple[Outcome, str]:
    """The outcome for the variant's own value, or its whole interval where the metric has noise; with what was seen."""
    value, low, high = comparison.variant_value, comparison.variant_low, comparison.variant_high
    if gate.metric not in METRICS:
        low = high = value
    seen = sentences.value_text(comparison, value)
    if value is None:
        return "inconclusive", seen
    if low is None or high is None:
        return "inconclusive", f"{seen}, {comparison.reason}"
    if low < high:
        limits = (sentences.value_text(comparison, each) for each in (low, high))
        seen += f", {units.level(comparison.confidence)} interval {' to '.join(limits)}"
    return gate.outcome(low, high), seen


def _judge_counts(gate: Gate, comparison: Comparison) -> Outcome:
    """The outcome for the two values alone, from zero or to zero too."""
    before, after = comparison.baseline_value, comparison.variant_value
    if before is None or after is None:
        return "inconclusive"
    at_limit = replace(gate, value=gate.value * before)
    return "passed" if at_limit.holds(after) else "failed"
