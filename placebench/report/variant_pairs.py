"""Each compared pair from the inside: flame graphs, frames and statements that changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from markupsafe import Markup

from placebench.experiment.records import StatementCount, WirePass
from placebench.profiler.model.fingerprint import normalised
from placebench.profiler.output.flame_svg import flame_difference_svg, flame_svg
from placebench.results import Run
from placebench.stats import Comparison

if TYPE_CHECKING:
    from pyinstrument.session import Session


_OURS = "profiler"
"""What stands for a file where the profiler itself was at work: no figure of the program's."""
_LEAVES = ("sql", "plan", "gc")
_SMALLEST_SHARE = 0.001

Frame = tuple[str, str]
"""Function, or text of a statement; and its file, or one of _LEAVES."""


@dataclass(frozen=True)
class FrameChange:
    """Own seconds of one frame in one mean request, watched; 0 where it was not seen."""

    name: str
    place: str
    before_s: float
    after_s: float

    @property
    def change_s(self) -> float:
        """Above 0 it got dearer."""
        return self.after_s - self.before_s

    @property
    def is_sql(self) -> bool:
        """Whether it is a statement, or a node of its plan."""
        return self.place in ("sql", "plan")


def frame_changes(before: "Session", after: "Session") -> tuple[FrameChange, ...]:
    """Each frame whose own time changed by 0.1 % of the longer request or more, the largest change first."""
    left, right = own_times(before), own_times(after)
    least = _SMALLEST_SHARE * max(sum(left.values()), sum(right.values()))
    made = (
        FrameChange(*frame, left.get(frame, 0.0), right.get(frame, 0.0)) for frame in dict.fromkeys((*left, *right))
    )
    changed = [each for each in made if abs(each.change_s) >= least > 0]
    return tuple(sorted(changed, key=lambda each: abs(each.change_s), reverse=True))


def own_times(session: "Session") -> dict[Frame, float]:
    """Seconds by the frame that was on top."""
    places: dict[str, str] = {}
    times: dict[Frame, float] = {}
    for stack, seconds in session.frame_records:
        name, _, rest = stack[-1].partition("\x00") if stack else ("?", "", "")
        file = rest.partition("\x00")[0]
        if file != _OURS:
            frame = name, places.setdefault(file, relative(file, session.sys_path))
            times[frame] = times.get(frame, 0.0) + seconds
    return times


def relative(file: str, sys_path: list[str]) -> str:
    """*file* from the longest folder of *sys_path* that holds it; by its last two names where none does."""
    if file in _LEAVES or file.startswith("<"):
        return file
    folders = [folder.rstrip("/") + "/" for folder in sys_path if folder.startswith("/")]
    holding = max((folder for folder in folders if file.startswith(folder)), key=len, default="")
    return file[len(holding) :] if holding else str(PurePath(*PurePath(file).parts[-2:]))


_NONE = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class StatementChange:
    """One statement of one mean request; 0 calls on the side that does not know it."""

    sql: str
    calls: tuple[float, float]
    """Baseline, variant; as the others."""
    rows: tuple[float, float]
    exec_s: tuple[float, float]
    """In the server."""

    @property
    def state(self) -> str:
        """Whether it is "new", "gone", "changed" in its calls or rows, or the "same"."""
        if not self.calls[0] or not self.calls[1]:
            return "new" if not self.calls[0] else "gone"
        return "same" if self.calls[0] == self.calls[1] and self.rows[0] == self.rows[1] else "changed"


def statement_changes(before: WirePass, after: WirePass) -> tuple[StatementChange, ...]:
    """Each statement of either, those that are not the same first, then by their time in the server."""
    left, right = _by_fingerprint(before), _by_fingerprint(after)
    made = []
    for key in dict.fromkeys((*left, *right)):
        sql = (right.get(key) or left[key])[0]
        then, now = (side[key][1] if key in side else _NONE for side in (left, right))
        made.append(StatementChange(sql, *zip(then, now, strict=True)))
    return tuple(sorted(made, key=lambda each: (each.state == "same", -max(each.exec_s))))


def _by_fingerprint(counted: WirePass) -> dict[str, tuple[str, tuple[float, float, float]]]:
    """Text, and calls, rows and seconds, by the text that only the shape of the statement decides."""
    found: dict[str, tuple[str, tuple[float, float, float]]] = {}
    for each in counted.by_statement:
        key = normalised(each.sql)
        sql, sums = found.get(key, (each.sql, _NONE))
        found[key] = sql, _added(sums, each)
    return found


def _added(sums: tuple[float, float, float], each: StatementCount) -> tuple[float, float, float]:
    return sums[0] + each.calls, sums[1] + each.rows, sums[2] + each.exec_s


_MOST_FLAMES = 6
"""With more variants the flames stand on pages of their own: some 40 KB each."""
_MOST_LAID_OVER = 3
"""So many pairs have their flames laid over each other on the page."""


@dataclass(frozen=True)
class Pair:
    """Two variants, and what changed between them for one request."""

    baseline: str
    variant: str
    frames: tuple[FrameChange, ...]
    """Empty where either was not watched."""
    statements: tuple[StatementChange, ...]
    """Empty where either was not counted, or asks nothing."""
    flames: Markup | None
    """Both flames laid over each other; None where either was not watched, or for many pairs."""

    @property
    def dearer_s(self) -> float:
        """What the frames that got dearer add."""
        return sum(max(each.change_s, 0.0) for each in self.frames)

    @property
    def cheaper_s(self) -> float:
        """What the frames that got cheaper save."""
        return sum(max(-each.change_s, 0.0) for each in self.frames)


@dataclass(frozen=True)
class Flame:
    """One variant's flame; where there is none, why."""

    variant: str
    requests: int
    reason: str
    svg: Markup | None
    """None for many variants, too."""
    page: str | None
    speedscope: str | None


def pairs_of(run: Run, comparisons: Sequence[Comparison]) -> tuple[Pair, ...]:
    """A pair for each baseline and variant, in the order of *comparisons*."""
    names = dict.fromkeys((each.baseline, each.variant) for each in comparisons)
    sessions = {name: run.session(name) for name in dict.fromkeys(name for pair in names for name in pair)}
    made = []
    for baseline, variant in names:
        before, after = sessions[baseline], sessions[variant]
        counted = run.wire.get(baseline), run.wire.get(variant)
        made.append(
            Pair(
                baseline=baseline,
                variant=variant,
                frames=frame_changes(before, after) if before and after else (),
                statements=statement_changes(counted[0], counted[1]) if counted[0] and counted[1] else (),
                flames=flame_difference_svg(before, after)
                if before and after and len(names) <= _MOST_LAID_OVER
                else None,
            )
        )
    return tuple(made)


def flames_of(run: Run) -> tuple[Flame, ...]:
    """The flame of each variant that was watched, or was to be; a flame without its data is linked from its rung."""
    return tuple(_flames(run, inline=len(run.watched) <= _MOST_FLAMES))


def _flames(run: Run, *, inline: bool) -> Iterator[Flame]:
    for variant, watched in run.watched.items():
        session = run.session(variant)
        if session is None and not watched.reason:
            continue
        page, speedscope = run.profile(variant), run.speedscope(variant)
        yield Flame(
            variant=variant,
            requests=watched.requests,
            reason=watched.reason,
            svg=flame_svg(session) if session and inline else None,
            page=page.name if page else None,
            speedscope=speedscope.name if speedscope else None,
        )


def by_pair(comparisons: Sequence[Comparison]) -> Mapping[tuple[str, str], Comparison]:
    """The first comparison of each pair: that of the primary metric."""
    first: dict[tuple[str, str], Comparison] = {}
    for each in comparisons:
        first.setdefault((each.baseline, each.variant), each)
    return first
