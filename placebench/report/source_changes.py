"""What a change between two commits can have changed, in a report: `unexecuted_changes`, and what follows for gates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placebench import units
from placebench.compare.keep.records import ExecutedChange
from placebench.gates import Gate
from placebench.report.model import Check
from placebench.results import Run
from placebench.stats import COUNTED, METRICS, Comparison
from placebench.stats.verdict import EQUIVALENT

_MAX_NAMED = 3


def unexecuted_changes(run: Run, comparisons: Sequence[Comparison]) -> dict[tuple[str, str], ExecutedChange]:
    """Return the changes of which no line was executed and whose counts are the same, by (baseline, variant).

    A time that differs then is one of the machine.
    """
    other = {
        each.pair for each in comparisons if each.metric in COUNTED and each.measured and each.verdict != EQUIVALENT
    }
    return {
        (each.baseline, each.variant): each
        for each in run.executed
        if not (each.executed or each.unseen) and (each.baseline, each.variant) not in other
    }


def is_untimed(run: Run) -> bool:
    """Return whether the run measured no times because the application reads nothing that differs."""
    return bool(run.executed) and not run.blocks and not any(each.is_read for each in run.executed)


def source_sentences(run: Run, changes: Mapping[tuple[str, str], ExecutedChange]) -> list[str]:
    """Return a sentence for each change of which nothing was executed."""
    said = []
    for each in changes.values():
        named = ", ".join(each.files[:_MAX_NAMED])
        files = named if len(each.files) <= _MAX_NAMED else f"{units.numbered(len(each.files), 'file')} such as {named}"
        if not each.files:
            rest = "no time was measured" if is_untimed(run) else "a difference in time is one of the machine"
            said.append(f"{each.variant} has the same files as {each.baseline}: {rest}.")
        elif is_untimed(run):
            said.append(
                f"{each.variant} differs from {each.baseline} in {files}, of which the application executes and reads "
                "nothing but comments: no time was measured."
            )
        else:
            said.append(
                f"No request executed a changed line: {each.variant} differs from {each.baseline} in {files}, and "
                f"{units.numbered(each.requests, 'request')} were watched. A difference in time is one of the machine."
            )
    return said


def without_machine(
    gates: Sequence[Gate], checks: Sequence[Check], changes: Mapping[tuple[str, str], ExecutedChange]
) -> list[Check]:
    """Return the checks with those passed that compare a time or memory of a change of which nothing was executed."""
    compared = {gate.text for gate in gates if gate.is_ratio and gate.metric in METRICS}
    variants = {each.variant for each in changes.values()}
    return [
        replace(each, outcome="passed", measured=f"{each.measured}; no request executed a changed line")
        if each.outcome in ("failed", "inconclusive") and each.name in compared and each.variant in variants
        else each
        for each in checks
    ]
