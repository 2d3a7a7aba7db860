"""The control of a comparison in its report: whether a change of known size was found, `control_result`."""

from dataclasses import dataclass
from typing import Any

from placebench import units
from placebench.compare.keep.control import Control
from placebench.compare.keep.records import WirePass
from placebench.gates import Outcome
from placebench.report.effects import effect_text, reason_text
from placebench.report.model import Check
from placebench.report.source_changes import is_untimed
from placebench.results import Run
from placebench.stats import Comparison, compare_blocks, compare_counts
from placebench.stats.verdict import SLOWER


@dataclass(frozen=True)
class ControlResult:
    """Whether a run found the change that was injected into a copy of its baseline."""

    control: Control
    variant: str
    """The name of the control among the run's blocks; empty if it was not prepared."""
    injected_s: float | None
    """The seconds that were added to each request; None if the control was not measured."""
    comparison: Comparison | None
    """The control compared with the baseline by the metric of the slow-down; None if it was not measured."""
    reason: str
    """Why the control was not measured; empty if it was."""
    cost_s: float
    """The time in seconds that the control took of the run."""
    run_s: float

    @property
    def is_found(self) -> bool:
        """Whether the whole confidence interval lies above no change, or for a statement the count is higher."""
        if self.comparison is None:
            return False
        if not self.control.is_timed:
            return self.comparison.verdict == SLOWER
        return self.comparison.low is not None and self.comparison.low > 1

    @property
    def gated(self) -> str:
        """The gates that do not pass without the control, as text."""
        return "gate on a time" if self.control.is_timed else "gate on a count"

    @property
    def outcome(self) -> str:
        """The result as text, such as 'found (+2.9 % CPU [95 % CI +2.1, +3.6; n = 12])'."""
        made = self.comparison
        if made is None:
            return f"not measured: {self.reason}"
        if made.low is None and self.control.is_timed:
            return f"not found: {reason_text(made) or 'too few replicates'}"
        return f"{'found' if self.is_found else 'not found'} ({effect_text(made, named=True)})"

    @property
    def sentence(self) -> str:
        """What was injected, whether it was found, and the time that the control took."""
        if self.comparison is None:
            passes = "" if self.control.is_default else f" No {self.gated} passes."
            return f"Control not measured: {self.reason}.{passes}"
        injected = f"{self.control.label} injected"
        if self.injected_s and (whole_s := self.comparison.baseline_value):
            share = units.percent(self.injected_s / whole_s, digits=2)
            injected += f" ({units.duration(self.injected_s)} per request, {share} of {self.comparison.baseline})"
        missed = "" if self.is_found else f" This run can miss an effect of that size: no {self.gated} passes."
        others_s = self.run_s - self.cost_s
        more = f", {units.percent(self.cost_s / others_s, digits=2)} more than without it" if others_s > 0 else ""
        return f"Control: {injected}: {self.outcome}.{missed} It took {units.duration(self.cost_s)}{more}."

    @property
    def check(self) -> Check:
        """The result as a check, which is inconclusive if the change was not found."""
        outcome: Outcome = "passed" if self.is_found else "inconclusive"
        return Check(f"control {self.control.label}", self.variant or "control", outcome, self.outcome, is_control=True)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values in seconds."""
        made = self.comparison
        return {
            **self.control.to_json(),
            "injected_s": self.injected_s,
            "found": self.is_found,
            "reason": self.reason,
            "cost_s": self.cost_s,
            "comparison": made.to_json() if made else None,
        }


def control_result(run: Run) -> ControlResult | None:
    """Return whether the run found its control; None for a run without one, or if no speeds may be compared."""
    wanted = run.head.settings.get("control")
    if wanted is None or not run.head.is_comparable or is_untimed(run):
        return None
    control, record = Control(**wanted), run.control
    baseline, injected_s = run.head.variants[0], record.injected_s if record else None
    comparison, reason = None, ""
    if record is None:
        reason = "the run ended before"
    elif record.reason:
        reason = record.reason
    elif not control.is_timed:
        own = run.folder / f"wire-{record.variant}.json"
        before, after = run.wire.get(baseline), WirePass.load(own) if own.is_file() else None
        if before and after and before.statements and after.statements:
            comparison = compare_counts(before.statements, after.statements, baseline, record.variant, control.metric)
        else:
            reason = "statements are not counted here"
    elif injected_s is None:
        reason = f"the CPU of {baseline} per request is unknown"
    else:
        sequential = bool(run.head.settings.get("sequential"))
        comparison = compare_blocks(run.blocks, baseline, record.variant, control.metric, sequential=sequential)
        if not comparison.measured:
            comparison, reason = None, f"no replicate has the {'CPU' if control.kind == 'cpu' else 'time'} of a request"
    share = sum(block.variant == record.variant for block in run.blocks) if record else 0
    spent_s = run.head.spent_s
    return ControlResult(
        control=control,
        variant=record.variant if record else "",
        injected_s=injected_s,
        comparison=comparison,
        reason=reason,
        cost_s=spent_s.get("control", 0.0) + spent_s.get("replicates", 0.0) * share / max(1, len(run.blocks)),
        run_s=run.head.elapsed_s,
    )
