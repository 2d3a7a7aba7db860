"""The difference of two recordings: by statement, by frame and by plan, as text and as plain data.

The key piece is `difference`. All figures are means of one request, so that recordings of different numbers of
requests compare. Two recordings are no experiment: they show where something changed, not whether a change is faster.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.profiler.analysis.summary import total
from placebench.profiler.model.fingerprint import one_line
from placebench.profiler.model.recording import Recording
from placebench.profiler.model.statement import Statement

if TYPE_CHECKING:
    from pyinstrument.session import Session

_MOST_LINES = 30
_INSTALLED = re.compile(r"\(\S*/(?:site|dist)-packages/")
_SMALLEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and after; None where it was not measured."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class StatementChange:
    """One fingerprint; what it has not on one side has 0 calls there."""

    fingerprint: str
    sql: str
    calls: Change
    seconds: Change
    rows: Change
    round_trips: Change

    @property
    def state(self) -> str:
        """Whether it is "new", "gone" or "kept"."""
        return "new" if not self.calls.before else "gone" if not self.calls.after else "kept"


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A statement that PostgreSQL ran in another way."""

    fingerprint: str
    sql: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one recording to the other, the largest change of time first."""

    before: str
    after: str
    totals: tuple[Change, ...]
    statements: tuple[StatementChange, ...]
    frames: tuple[Change, ...]
    plans: tuple[PlanChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dump."""
        return asdict(self)

    def __str__(self) -> str:
        """Three tables for a terminal, a request's means."""
        lines = [f"{self.before} → {self.after}, means of one request"]
        lines.extend(f"  {plain_name(change):<14} {shown(change)}" for change in self.totals)
        lines.append("statements")
        lines.extend(map(_statement_line, self.statements[:_MOST_LINES]))
        if self.frames:
            lines.append("frames, own time")
            lines.extend(f"  {shown(frame):<32} {frame_name(frame)}" for frame in self.frames[:_MOST_LINES])
        if self.plans:
            lines.append("plans")
            lines.extend(line for plan in self.plans for line in _plan_lines(plan))
        return "\n".join(lines)


def difference(before: Recording, after: Recording) -> Difference:
    """What changed from *before* to *after*; frames only if both are flames, plans only if both have plans."""
    return Difference(
        before=before.name,
        after=after.name,
        totals=_totals(before, after),
        statements=_statements(before, after),
        frames=_frames(before, after),
        plans=_plans(before, after),
    )


def shown(change: Change) -> str:
    """One figure for eyes, by the unit in its name: "12.3 ms → 4.56 ms (−63 %)"."""
    eyes: Callable[[float | None], str] = units.average
    if change.name.endswith("_s"):
        eyes = units.duration
    elif change.name.startswith("bytes"):
        eyes = units.size
    if change.before == change.after:
        return f"{eyes(change.before)}, as before"
    ratio = change.after / change.before if change.before and change.after is not None else None
    return f"{eyes(change.before)} → {eyes(change.after)}" + ("" if ratio is None else f" ({units.change(ratio)})")


def plain_name(change: Change) -> str:
    """The name of one of the sums for eyes: "elapsed", "row count"."""
    return change.name.removesuffix("_s").replace("_", " ")


def frame_name(change: Change) -> str:
    """A frame's name for eyes: without the unit, and an installed package's file from its package on."""
    return _INSTALLED.sub("(", change.name.removesuffix(" own_s"))


def _totals(before: Recording, after: Recording) -> tuple[Change, ...]:
    """The sums of both."""
    names = ("elapsed_s", "cpu_s", "sql_s", "python_s", "gc_s", "row_count", "round_trips", "bytes_received")
    counts = Change("statements", _mean(before.statement_count, before), _mean(after.statement_count, after))
    return (
        *(Change(name, _mean(getattr(before, name), before), _mean(getattr(after, name), after)) for name in names),
        counts,
    )


def _mean(value: float | None, recording: Recording) -> float | None:
    """Of one request."""
    return None if value is None else value / recording.requests


def _statements(before: Recording, after: Recording) -> tuple[StatementChange, ...]:
    """Each fingerprint of either."""
    left, right = _by_fingerprint(before), _by_fingerprint(after)

    def change(name: str, fingerprint: str, figure: Callable[[Sequence[Statement]], float | None]) -> Change:
        sides = ((left, before), (right, after))
        return Change(name, *(_mean(figure(side.get(fingerprint, ())), recording) for side, recording in sides))

    changes = [
        StatementChange(
            fingerprint=fingerprint,
            sql=(right.get(fingerprint) or left[fingerprint])[0].sql,
            calls=change("calls", fingerprint, len),
            seconds=change("elapsed_s", fingerprint, lambda all_: sum(each.elapsed_s for each in all_)),
            rows=change("row_count", fingerprint, lambda all_: total(each.row_count for each in all_)),
            round_trips=change("round_trips", fingerprint, lambda all_: total(each.round_trips for each in all_)),
        )
        for fingerprint in dict.fromkeys((*left, *right))
    ]
    return tuple(sorted(changes, key=lambda each: _size(each.seconds), reverse=True))


def _frames(before: Recording, after: Recording) -> tuple[Change, ...]:
    """Own time of each function, statement and plan node in the flames of both, which are of one request each."""
    if before.session is None or after.session is None:
        return ()
    left, right = own_times(before.session), own_times(after.session)
    changes = (
        Change(f"{name} own_s", left.get(name, 0.0), right.get(name, 0.0)) for name in dict.fromkeys((*left, *right))
    )
    return tuple(sorted((each for each in changes if _size(each) >= _SMALLEST_S), key=_size, reverse=True))


def own_times(session: "Session") -> dict[str, float]:
    """Seconds by the frame that was on top: "function (file)", without lines, which move when code changes."""
    times: dict[str, float] = {}
    for stack, seconds in session.frame_records:
        function, _, rest = stack[-1].partition("\x00") if stack else ("?", "", "")
        name = f"{function} ({rest.partition(chr(0))[0]})"
        times[name] = times.get(name, 0.0) + seconds
    return times


def _plans(before: Recording, after: Recording) -> tuple[PlanChange, ...]:
    """Each fingerprint that has plans in both, and others than before."""
    left, right = _by_fingerprint(before), _by_fingerprint(after)
    changes = (
        PlanChange(fingerprint, right[fingerprint][0].sql, _shapes(left[fingerprint]), _shapes(right[fingerprint]))
        for fingerprint in left.keys() & right.keys()
    )
    return tuple(change for change in changes if change.before and change.after and change.before != change.after)


def _by_fingerprint(recording: Recording) -> dict[str, list[Statement]]:
    """Statements by fingerprint."""
    found: dict[str, list[Statement]] = {}
    for statement in recording.statements:
        found.setdefault(statement.fingerprint, []).append(statement)
    return found


def _shapes(statements: Iterable[Statement]) -> tuple[str, ...]:
    """The distinct shapes of their plans."""
    return tuple(sorted({statement.plan.shape for statement in statements if statement.plan is not None}))


def _size(change: Change) -> float:
    """How large a change is, either way."""
    return abs((change.after or 0.0) - (change.before or 0.0))


def _statement_line(change: StatementChange) -> str:
    """One fingerprint on one line."""
    calls = f"{units.average(change.calls.before)} → {units.average(change.calls.after)} x"
    if change.calls.before == change.calls.after:
        calls = f"{units.average(change.calls.after)} x"
    return f"  {change.state:<5} {shown(change.seconds):<32} {calls:<14} {one_line(change.sql)[:80]}"


def _plan_lines(change: PlanChange) -> list[str]:
    """A changed plan on three lines."""
    return [
        f"  {one_line(change.sql)[:100]}",
        f"    − {' | '.join(change.before)}",
        f"    + {' | '.join(change.after)}",
    ]
