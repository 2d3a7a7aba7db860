"""What a run shows in CI: `annotations_of` its checks, and of the lines below which something became slower."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from placebench import units
from placebench.errors import RunFolderError
from placebench.profiler.analysis.difference import Frame, frame_of
from placebench.report.effects import frame_labels
from placebench.report.figures import figures_of
from placebench.results import Run
from placebench.stats.attribution import PartChange
from placebench.stats.verdict import SLOWER

_MAX_LINES = 10
"""Maximum number of lines that are annotated: services show about ten annotations per step."""
_MIN_SHARE = 0.05
"""A line is left out if less than this share of the largest line's change is below it."""


@dataclass(frozen=True)
class Annotation:
    """A sentence, and the place that it is shown next to, if it has one."""

    level: Literal["error", "warning"]
    title: str
    message: str
    file: str = ""
    """Path relative to the root of the repository, with slashes; empty for a check."""
    line: int = 0


def annotations_of(run: Run, root: Path, folder: Path) -> list[Annotation]:
    """Return an annotation per check that did not pass, and one per line below which a frame or statement got slower.

    A line is that of the innermost frame in the repository. It is named if the profiled replicates decide the change,
    and if that is 5 % of the largest line's change or more; ten lines at most, the largest change first.

    root: the repository. folder: the folder below it that the application is imported from.
    """
    return [*_checks(run.folder / "junit.xml"), *_lines(run, root.resolve(), folder.resolve())]


def _checks(path: Path) -> Iterator[Annotation]:
    try:
        tree = ElementTree.parse(path)
    except FileNotFoundError:
        return
    except ElementTree.ParseError as error:
        raise RunFolderError(f"{path}: expected JUnit XML, {error}") from error
    for case in tree.iter("testcase"):
        for outcome in case:
            variant = case.get("classname", "").removeprefix("placebench").removeprefix(".")
            message = f"{variant}: {outcome.get('message')}" if variant else str(outcome.get("message"))
            yield Annotation("warning" if outcome.tag == "skipped" else "error", case.get("name", ""), message)


def _lines(run: Run, root: Path, folder: Path) -> Iterator[Annotation]:
    """Yield an annotation for each line of the repository that called slower frames or statements of the variant."""
    for (baseline, variant), changes in figures_of(run).parts.items():
        session = run.session(variant)
        slower = {each.part: each for each in changes if each.verdict == SLOWER}
        if session is None or not slower:
            continue
        seconds: dict[Frame, dict[tuple[str, int], float]] = defaultdict(dict)
        for stack, duration_s in session.frame_records:
            part = frame_of(stack, session.sys_path)
            place = _innermost_line(stack, session.sys_path, root, folder) if part in slower else None
            if place is not None:
                seconds[part][place] = seconds[part].get(place, 0.0) + duration_s
        by_line: dict[tuple[str, int], list[PartChange[Frame]]] = defaultdict(list)
        for part, change in slower.items():
            if part in seconds:
                by_line[max(seconds[part], key=seconds[part].__getitem__)].append(change)
        totals = {place: sum(each.change for each in found) for place, found in by_line.items()}
        least = _MIN_SHARE * max(totals.values(), default=0.0)
        places = sorted((place for place in by_line if totals[place] >= least), key=totals.__getitem__, reverse=True)
        for file, line in places[:_MAX_LINES]:
            found = by_line[file, line]
            names = zip(frame_labels(found), found, strict=True)
            listed = "; ".join(f"{label} {_change_text(change)}" for label, change in names)
            message = f"{listed} per request under the profiler, {variant} against {baseline}"
            yield Annotation("warning", "slower below this line", message, file, line)


def _change_text(change: PartChange[Frame]) -> str:
    ends = [units.signed_duration(end) for end in (change.low, change.high) if end is not None]
    interval = f" [95 % CI {', '.join(ends)}]" if len(ends) == 2 else ""
    return f"{units.signed_duration(change.change)}{interval}"


def _innermost_line(stack: Sequence[str], sys_path: Sequence[str], root: Path, folder: Path) -> tuple[str, int] | None:
    """Return file and line of the innermost frame whose file is in the repository."""
    for frame in reversed(stack):
        _, place = frame_of([frame], sys_path)
        line = re.search(r"\x01l(\d+)", frame)
        path = (folder / place).resolve()
        if line and place.endswith(".py") and path.is_relative_to(root) and path.is_file():
            return path.relative_to(root).as_posix(), int(line.group(1))
    return None
