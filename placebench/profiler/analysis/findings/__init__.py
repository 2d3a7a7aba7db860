"""Findings in a recording: patterns worth changing, each with its place in the code and advice.

The main function is `find`. The finders are in modules by topic: `statements`, `plans`, `transactions`, `event_loop`.
A finding says that a pattern was there, not that it is the cause of anything: compare before and after.
"""

from dataclasses import replace

from placebench.profiler.analysis.findings import plans, statements
from placebench.profiler.analysis.findings.event_loop import blocked_event_loops
from placebench.profiler.analysis.findings.kinds import DESCRIPTIONS, Finding, Kind, Limits
from placebench.profiler.analysis.findings.statements import by_place, duplicates, n_plus_one
from placebench.profiler.analysis.findings.transactions import idle_in_transaction, pool_timeouts, pool_waits
from placebench.profiler.model.recording_data import RecordingData

__all__ = ["DESCRIPTIONS", "Finding", "Kind", "Limits", "find"]

_FINDERS = (*statements.FINDERS, pool_waits, *plans.FINDERS)


def find(recording: RecordingData, limits: Limits | None = None) -> tuple[Finding, ...]:
    """Return all findings, those with the most seconds first, in a few passes over the statements."""
    limits = limits or Limits()
    found = [
        *idle_in_transaction(recording, limits),
        *pool_timeouts(recording),
        *blocked_event_loops(recording, limits),
    ]
    for executions, unkept in by_place(recording):
        found.extend(n_plus_one(executions, unkept, recording, limits))
        found.extend(duplicates(executions, unkept, recording, limits))
        for finder in _FINDERS if executions else ():
            found.extend(finder(executions, recording, limits))
    found = [replace(finding, requests=recording.requests) for finding in found]
    return tuple(sorted(found, key=lambda finding: finding.seconds, reverse=True))
