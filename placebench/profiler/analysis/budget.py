"""What a request may cost at most, and which statements broke it: `Budget`, for pytest and `placebench profile`."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from placebench.errors import ProfilerError
from placebench.profiler.analysis.findings import find
from placebench.profiler.analysis.summary import group_statements
from placebench.profiler.model.fingerprint import one_line
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Statement

_MOST_STATEMENTS = 10
_NAMES = {"round_trips": "round trips", "n_plus_one": "n+1"}


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one request may have of each; None: no limit.

    duplicates: statements that had run with the same values. n_plus_one: lines that run one statement 5 times or more.
    """

    statements: int | None = None
    rows: int | None = None
    round_trips: int | None = None
    duplicates: int | None = None
    n_plus_one: int | None = None

    @classmethod
    def parse(cls, limits: Iterable[str]) -> Self:
        """A budget from texts like "statements=10". Raises ProfilerError for an unknown name or no number."""
        chosen: dict[str, int] = {}
        for text in limits:
            name, _, number = text.partition("=")
            if name not in cls.names() or not number.isdigit():
                raise ProfilerError(f"budget {text!r}: expected NAME=NUMBER with one of {', '.join(cls.names())}")
            chosen[name] = int(number)
        return cls(**chosen)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What can be limited."""
        return tuple(field.name for field in fields(cls))

    def check(self, mode: str) -> None:
        """Raises ProfilerError if a recording in this mode cannot tell what the budget limits."""
        if mode == "light" and self.duplicates is not None:
            raise ProfilerError("budget duplicates: mode light compares no values; record in mode full")

    def broken_by(self, recording: RecordingData) -> str:
        """What was too much, each with statements and call sites; empty if the recording is within the budget.

        Of a merged recording the mean request counts.
        """
        seen = _seen(recording)
        broken = []
        for name in self.names():
            limit, value = getattr(self, name), seen[name] / recording.requests
            if limit is not None and value > limit:
                broken.append(f"{recording.name}: {value:g} {_NAMES.get(name, name)}, {limit} allowed")
        return "\n".join([*broken, *_culprits(recording)]) if broken else ""


def _seen(recording: RecordingData) -> dict[str, int]:
    """What the recording has of each."""
    findings = find(recording)
    return {
        "statements": recording.statement_count + recording.dropped,
        "rows": recording.row_count or 0,
        "round_trips": recording.round_trips or 0,
        "duplicates": sum(finding.count for finding in findings if finding.kind == "duplicate"),
        "n_plus_one": sum(finding.kind == "n+1" for finding in findings) * recording.requests,
    }


def _culprits(recording: RecordingData) -> list[str]:
    """The statements, most frequent first, each with where it is called from."""
    groups = sorted(group_statements(recording.statements), key=lambda group: group.calls, reverse=True)
    lines = []
    for group in groups[:_MOST_STATEMENTS]:
        lines.append(f"  {group.calls} x {one_line(group.sql)[:120]}")
        lines.extend(f"      {times} from {place}" for place, times in _places(recording.statements, group.fingerprint))
    if len(groups) > _MOST_STATEMENTS:
        lines.append(f"  and {len(groups) - _MOST_STATEMENTS} more")
    return lines


def _places(statements: Iterable[Statement], fingerprint: str) -> list[tuple[str, int]]:
    """How often each call site ran it."""
    counts: dict[str, int] = {}
    for statement in statements:
        if statement.fingerprint == fingerprint and statement.caller is not None:
            counts[str(statement.caller)] = counts.get(str(statement.caller), 0) + 1
    return sorted(counts.items(), key=lambda place: place[1], reverse=True)
