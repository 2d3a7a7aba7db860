"""The difference of two recordings: by statement, by frame and by plan, as text and as plain data.

The main function is `diff_recordings`; `statement_changes` and `frame_changes` compare figures of other sources too.
All figures are means per request, so recordings of different numbers of requests can be compared. Two recordings are
not an experiment: they show where something changed, not whether a change is faster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.profiler.analysis.summary import StatementGroup, group_statements
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Statement

if TYPE_CHECKING:
    from placebench.profiler.model.session import FlameSession

_MAX_LINES = 30
_MIN_SHARE = 0.001

Frame = tuple[str, str]
"""A function and its file, or a leaf: its text and its kind ("sql", "plan", "gc", "profiler" or "wait")."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and after, None if it was not measured; its name ends with its unit."""

    name: str
    before: float | None
    after: float | None

    @property
    def label(self) -> str:
        """The name without its unit: "elapsed", "row count"."""
        return self.name.removesuffix("_s").replace("_", " ")

    @property
    def size(self) -> float:
        """The absolute size of the change."""
        return abs((self.after or 0.0) - (self.before or 0.0))

    def __str__(self) -> str:
        """Return both values with their unit, and the change: "12.3 ms → 4.56 ms (−63 %)"."""
        show: Callable[[float | None], str] = units.average
        if self.name.endswith("_s"):
            show = units.duration
        elif self.name.startswith("bytes"):
            show = units.size
        if self.before == self.after:
            return show(self.before) if self.before is None else f"{show(self.before)}, unchanged"
        ratio = self.after / self.before if self.before and self.after is not None else None
        return f"{show(self.before)} → {show(self.after)}" + (
            "" if ratio is None else f" ({units.signed_percent(ratio)})"
        )


@dataclass(frozen=True, slots=True)
class StatementFigures:
    """The sums of all executions of one statement in one request; None for sums that were not measured."""

    sql: str
    calls: float
    rows: float | None = None
    seconds: float | None = None
    round_trips: float | None = None


@dataclass(frozen=True, slots=True)
class StatementChange:
    """The change of one statement (one fingerprint); a side that did not run it has 0 calls."""

    fingerprint: str
    sql: str
    calls: Change
    seconds: Change
    rows: Change
    round_trips: Change

    @property
    def state(self) -> str:
        """The state of the statement: "new", "gone", "changed" (in its calls or rows) or "same"."""
        if not self.calls.before or not self.calls.after:
            return "gone" if self.calls.before else "new"
        return "changed" if self.calls.size or self.rows.size else "same"


@dataclass(frozen=True, slots=True)
class FrameChange:
    """The self time of one frame per request; 0 if it was not sampled. place: its file, or the kind of a leaf."""

    name: str
    place: str
    before_s: float
    after_s: float

    @property
    def change_s(self) -> float:
        """The change of the self time in seconds; negative if it became shorter."""
        return self.after_s - self.before_s

    @property
    def label(self) -> str:
        """The frame with its file, if it has one."""
        return f"{self.name} ({self.place})" if self.place else self.name

    def __str__(self) -> str:
        return str(Change("self_s", self.before_s, self.after_s))


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A statement that PostgreSQL ran with other plans. before, after: the structures of its plans."""

    fingerprint: str
    sql: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordingDifference:
    """The changes from one recording to another, the largest change of time first.

    other_frames: all frames that are not in *frames*, with the profiler's, so that all together are the elapsed time;
        None without two flame graphs.
    """

    before: str
    after: str
    totals: tuple[Change, ...]
    statements: tuple[StatementChange, ...]
    frames: tuple[FrameChange, ...]
    other_frames: FrameChange | None
    plans: tuple[PlanChange, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for json.dump."""
        return asdict(self)

    def __str__(self) -> str:
        """Return tables for a terminal, with means per request."""
        lines = [f"{self.before} → {self.after}, means of one request", *self.notes]
        lines.extend(f"  {total.label:<14} {total}" for total in self.totals)
        lines.append("statements")
        for change in self.statements[:_MAX_LINES]:
            calls = f"{units.average(change.calls.before)} → {units.average(change.calls.after)} x"
            if not change.calls.size:
                calls = f"{units.average(change.calls.after)} x"
            lines.append(f"  {change.state:<7} {change.seconds!s:<32} {calls:<14} {shortened(change.sql, 80)}")
        if self.frames:
            lines.append("frames, self time")
            lines.extend(f"  {frame!s:<32} {frame.label}" for frame in self.frames[:_MAX_LINES])
        if self.plans:
            lines.append("plans")
            for plan in self.plans:
                lines.append(f"  {shortened(plan.sql, 100)}")
                lines += [f"    − {' | '.join(plan.before)}", f"    + {' | '.join(plan.after)}"]
        return "\n".join(lines)


def diff_recordings(before: RecordingData, after: RecordingData) -> RecordingDifference:
    """Return the changes from *before* to *after*.

    Frames are compared if both have a flame graph, plans if both have plans.
    """
    notes = []
    if before.mode != after.mode:
        notes.append(
            f"recorded in the modes {before.mode} and {after.mode}: their overheads differ, and so do the times"
        )
    for side, recording in (("before", before), ("after", after)):
        notes += [f"{side}: {gap}" for gap in recording.gaps]
        if recording.unkept.statements:
            beyond = units.numbered(recording.unkept.statements, "statement")
            notes.append(f"{side}: {beyond} beyond the limit are in the totals alone")
    names = ("elapsed_s", "cpu_s", "sql_s", "python_s", "gc_s", "row_count", "round_trips", "bytes_received")
    totals = [Change(name, _mean(getattr(before, name), before), _mean(getattr(after, name), after)) for name in names]
    totals.append(Change("statements", *(_mean(each.statement_count, each) for each in (before, after))))
    frames: tuple[FrameChange, ...] = ()
    others: FrameChange | None = None
    if before.session is not None and after.session is not None:
        frames = frame_changes(before.session, after.session)
        whole = [sum(seconds for _, seconds in side.frame_records) for side in (before.session, after.session)]
        sides = zip(whole, (sum(each.before_s for each in frames), sum(each.after_s for each in frames)), strict=True)
        others = FrameChange("all other frames", "", *(round(all_s - shown_s, 12) for all_s, shown_s in sides))
    return RecordingDifference(
        before=before.name,
        after=after.name,
        totals=tuple(totals),
        statements=statement_changes(_figures(before), _figures(after)),
        frames=frames,
        other_frames=others,
        plans=_plan_changes(before, after),
        notes=tuple(notes),
    )


def statement_changes(
    before: Mapping[str, StatementFigures], after: Mapping[str, StatementFigures]
) -> tuple[StatementChange, ...]:
    """Return the change of each statement of either side, by fingerprint; the largest change of time first."""
    changes = []
    for fingerprint in dict.fromkeys((*before, *after)):
        sql = (after.get(fingerprint) or before[fingerprint]).sql
        not_run = StatementFigures(sql, 0.0, 0.0, 0.0, 0.0)
        old, new = (side.get(fingerprint, not_run) for side in (before, after))
        change = StatementChange(
            fingerprint=fingerprint,
            sql=sql,
            calls=Change("calls", old.calls, new.calls),
            seconds=Change("elapsed_s", old.seconds, new.seconds),
            rows=Change("row_count", old.rows, new.rows),
            round_trips=Change("round_trips", old.round_trips, new.round_trips),
        )
        changes.append(change)
    return tuple(sorted(changes, key=lambda change: change.seconds.size, reverse=True))


def frame_changes(before: "FlameSession", after: "FlameSession") -> tuple[FrameChange, ...]:
    """Return the frames whose self time changed by 0.1 % of the longer request or more, the largest change first.

    Profiler overhead is left out. Each session is that of one request, or of the mean request.
    """
    left, right = self_times(before), self_times(after)
    least = _MIN_SHARE * max(sum(left.values()), sum(right.values()))
    frames = dict.fromkeys((*left, *right))
    changes = [FrameChange(*frame, left.get(frame, 0.0), right.get(frame, 0.0)) for frame in frames]
    large = [change for change in changes if abs(change.change_s) >= least > 0]
    return tuple(sorted(large, key=lambda change: abs(change.change_s), reverse=True))


def self_times(session: "FlameSession") -> dict[Frame, float]:
    """Return the self time of each frame in seconds, without profiler overhead; line numbers are ignored."""
    frames: dict[str, Frame] = {}
    times: dict[Frame, float] = {}
    for stack, seconds in session.frame_records:
        last = stack[-1] if stack else "?"
        if last not in frames:
            frames[last] = frame_of(stack, session.sys_path)
        frame = frames[last]
        if frame[1] != "profiler":
            times[frame] = times.get(frame, 0.0) + seconds
    return times


def frame_of(stack: Sequence[str], sys_path: Iterable[str]) -> Frame:
    """Return the innermost frame of a stack of a session, without its line."""
    function, _, rest = stack[-1].partition("\x00") if stack else ("?", "", "")
    return function, relative_place(rest.partition("\x00")[0], sys_path)


def relative_place(file: str, sys_path: Iterable[str]) -> str:
    """Return *file* relative to the longest folder of *sys_path* that contains it, or else its last two path parts."""
    if not file or file.startswith("<"):
        return file
    folders = [folder.rstrip("/") + "/" for folder in sys_path if folder.startswith("/") or folder[1:3] == ":/"]
    holding = max((folder for folder in folders if file.startswith(folder)), key=len, default="")
    return file[len(holding) :] if holding else "/".join(file.split("/")[-2:])


def _mean(value: float | None, recording: RecordingData) -> float | None:
    """Return *value*, a sum over a recording, per request; None stays None."""
    return None if value is None else value / recording.requests


def _figures(recording: RecordingData) -> dict[str, StatementFigures]:
    """Return the mean figures of each statement per request, by fingerprint."""

    def figures(group: StatementGroup) -> StatementFigures:
        return StatementFigures(
            sql=group.sql,
            calls=group.calls / recording.requests,
            rows=_mean(group.row_count, recording),
            seconds=_mean(group.elapsed_s, recording),
            round_trips=_mean(group.round_trips, recording),
        )

    return {group.fingerprint: figures(group) for group in group_statements(recording.statements)}


def _plan_changes(before: RecordingData, after: RecordingData) -> tuple[PlanChange, ...]:
    """Return the statements with plans in both recordings whose plans differ in structure."""
    left, right = _plan_shapes(before.statements), _plan_shapes(after.statements)
    texts = {statement.fingerprint: statement.sql for statement in after.statements}
    return tuple(
        PlanChange(fingerprint, texts[fingerprint], tuple(sorted(shapes)), tuple(sorted(right[fingerprint])))
        for fingerprint, shapes in left.items()
        if fingerprint in right and shapes != right[fingerprint]
    )


def _plan_shapes(statements: Iterable[Statement]) -> dict[str, set[str]]:
    shapes: dict[str, set[str]] = {}
    for statement in statements:
        if statement.plan is not None:
            shapes.setdefault(statement.fingerprint, set()).add(statement.plan.shape)
    return shapes
