"""Limits on the SQL of a request, and the statements that break them: `Budget`, for pytest and `profile check`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from placebench import units
from placebench.errors import ProfilerError
from placebench.gates import COUNT, Gate, parse_gate
from placebench.profiler.analysis.findings import find
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.shortened_sql import shortened

_MAX_STATEMENTS = 10
METRICS = ("statements", "rows", "round_trips", "duplicates", "n_plus_one")
_LABELS = {"round_trips": "round trips", "n_plus_one": "n+1"}


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one request, as gates such as "statements <= 10".

    A recording that missed something, or has no figure for a gate, breaks the budget: an unknown figure is not below a
    limit. duplicates: statements that had run with the same values. n_plus_one: lines that run one statement 5 times or
    more.
    """

    gates: tuple[Gate, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return a budget of these gates. Raises UsageError for a text that is not a gate, or for an unknown metric."""
        return cls(tuple(parse_gate(text, dict.fromkeys(METRICS, COUNT)) for text in texts))

    @classmethod
    def at_most(cls, **limits: float) -> Self:
        """Return a budget of upper limits per request: `Budget.at_most(statements=10)`."""
        return cls.parse(f"{name} <= {limit}" for name, limit in limits.items())

    def check(self, mode: str) -> None:
        """Raise ProfilerError if a recording in this mode has no figures for a gate."""
        if mode == "light" and any(gate.metric == "duplicates" for gate in self.gates):
            raise ProfilerError("gate of duplicates: mode light compares no values; record in mode full")

    def broken_by(self, recording: RecordingData) -> str:
        """Return a text with the broken gates, the statements and their call sites; empty if all gates hold.

        A merged recording is judged by its mean request.
        """
        seen, unknown = _seen(recording), _unknown(recording)
        broken = [f"{recording.name}: {gap}" for gap in recording.gaps] if self.gates else []
        for gate in self.gates:
            value, label = seen[gate.metric] / recording.requests, _LABELS.get(gate.metric, gate.metric)
            if not gate.holds(value):
                broken.append(f"{recording.name}: {value:g} {label}, expected {gate.operator} {gate.value:g}")
            elif reason := unknown.get(gate.metric):
                broken.append(
                    f"{recording.name}: {label} not measured, expected {gate.operator} {gate.value:g}: {reason}"
                )
        return "\n".join([*broken, *_culprits(recording)]) if broken else ""


def _seen(recording: RecordingData) -> dict[str, int]:
    findings = find(recording)
    return {
        "statements": recording.statement_count,
        "rows": recording.row_count or 0,
        "round_trips": recording.round_trips or 0,
        "duplicates": sum(finding.count for finding in findings if finding.kind == "duplicate"),
        "n_plus_one": sum(finding.kind == "n+1" for finding in findings) * recording.requests,
    }


def _unknown(recording: RecordingData) -> dict[str, str]:
    """Return the reason for each metric whose figure is too low or missing."""
    if recording.sql_s is None and not recording.statements:
        return dict.fromkeys(METRICS, "the profiler was off")
    unknown: dict[str, str] = {}
    if recording.dropped:
        dropped = f"{units.numbered(recording.dropped, 'statement')} beyond the limit not kept"
        trips = None if recording.unkept.unknown_round_trips else recording.unkept.round_trips
        sums = {"rows": recording.row_count, "round_trips": trips}
        is_placed = sum(each.count for each in recording.unkept_places) == recording.unkept.statements
        known = {name for name, value in sums.items() if value is not None}
        known |= {"duplicates", "n_plus_one"} if is_placed else set()
        unknown = {name: dropped for name in METRICS[1:] if name not in known}
    done = [each for each in recording.statements if each.error is None]
    without = {
        "rows": sum(each.is_uncounted for each in done),
        "round_trips": sum(each.round_trips is None for each in done),
        "duplicates": sum(each.repeated is None and each.kind == "read" and not each.is_meant_again for each in done)
        + sum(each.unknown for each in recording.unkept_places if each.first.kind == "read"),
    }
    for metric, count in without.items():
        if count:
            unknown.setdefault(metric, f"{count} of {recording.statement_count} statements have no figure")
    return unknown


def _culprits(recording: RecordingData) -> list[str]:
    """Return lines with the statements and their call sites, the most frequent statement first."""
    calls, places, texts = Counter[str](), dict[str, Counter[str]](), dict[str, str]()
    beyond = ((each.first, each.count) for each in recording.unkept_places)
    for statement, times in (*((each, 1) for each in recording.statements), *beyond):
        fingerprint = statement.fingerprint
        texts.setdefault(fingerprint, statement.sql)
        calls[fingerprint] += times
        if statement.caller is not None:
            places.setdefault(fingerprint, Counter())[str(statement.caller)] += times
    lines = []
    # Not in the order of their arrival: statements beyond the limit come last.
    most = sorted(calls.items(), key=lambda each: (-each[1], texts[each[0]]))
    for fingerprint, times in most[:_MAX_STATEMENTS]:
        lines.append(f"  {times} x {shortened(texts[fingerprint], 120)}")
        ran = places.get(fingerprint, Counter[str]()).most_common()
        lines.extend(f"      {times_here} from {place}" for place, times_here in ran)
    if len(calls) > _MAX_STATEMENTS:
        lines.append(f"  and {len(calls) - _MAX_STATEMENTS} more")
    return lines
