"""The parts that all studies share: points and their measurement, and the session that measures what is missing.

A study defines its points and how one of them is measured (`StudySpec`). `StudySession` measures each point several
times in an interleaved, seeded order, and saves each measurement before the next begins. A session measures what is
missing, so a study that was killed can be resumed and loses at most one measurement. A point that fails three times in
a row is left out for the rest of the session, and the other points continue.

A study's module is also imported for its help and for reading its runs, which work without the extra bench. Therefore
imports of measuring code are inside functions, here and in each study.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, cast, get_origin, get_type_hints

from placebench.compare.keep.documents import MeasuredPoint, RunKind, StudyHead
from placebench.compare.keep.records import DataDescription, Measurement, RunHead, append_lines, read_measurements
from placebench.errors import GateFailedError, PlacebenchError
from placebench.masking import mask_document

if TYPE_CHECKING:
    from placebench.compare.keep.run_folder import Say

Point = Mapping[str, Any]
Measure = Callable[[Point, int], Mapping[str, Any]]
"""Measures a point once for the given repeat; after an error of `run_folder.FAILURES`, the point is measured again."""
_T = TypeVar("_T")
_Setup = TypeVar("_Setup")


class UnmeasurableError(PlacebenchError):
    """A point cannot be measured, and no further attempt would change that: it is left out, with the reason."""


class Restartable(Generic[_T]):
    """A resource shared by measurements, such as a client: started on first use, and restarted after a failure."""

    def __init__(self, start: Callable[[], AbstractContextManager[_T]]) -> None:
        self._start = start
        self._stack = ExitStack()
        self._started: _T | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @contextmanager
    def in_use(self) -> Iterator[_T]:
        """Yield the resource for one measurement; it is stopped if the `with` block fails."""
        if self._started is None:
            self._started = self._stack.enter_context(self._start())
        try:
            yield self._started
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        self._started = None
        self._stack.close()


@dataclass(frozen=True)
class StudySpec(Generic[_Setup]):
    """The points of a study, and how they are measured."""

    command: str
    points: tuple[Point, ...]
    repeats: int
    prepare: Callable[[_Setup], AbstractContextManager[Measure]]
    """A context manager that prepares what all points need, yields the measuring function, and cleans up."""
    request: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings, which are saved in run.json."""
    variants: tuple[str, ...] = ()
    impossible: tuple[tuple[Point, str], ...] = ()
    """Points that cannot be measured, each with the reason."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings for the run's head; equal studies have equal settings."""
        points = [dict(point) for point in self.points]
        impossible = [{"point": dict(point), "reason": reason} for point, reason in self.impossible]
        return {**self.settings, "repeats": self.repeats, "points": points, "impossible": impossible}


class StudySession(ABC, Generic[_Setup]):
    """One session of a study in one folder; a kind of data defines how it is set up."""

    def __init__(self, spec: StudySpec[_Setup], data: DataDescription, folder: Path) -> None:
        """Open a new or an interrupted run; raise RunFolderError if the folder has the run of another study."""
        from placebench.compare.keep.run_folder import RunFolder

        self._spec = spec
        self._seed = data.seed
        self._path = folder / "measurements.jsonl"
        head = RunHead.begin(
            folder, data, command=spec.command, request=spec.request, variants=spec.variants, settings=spec.to_json()
        )
        self._run = RunFolder.resume(folder, head)
        self._done = {_key(each.point, each.repeat) for each in read_measurements(self._path) if each.invalid is None}
        self._failed: dict[str, str] = {}
        self._noted: set[str] = set()

    @abstractmethod
    def _set_up(self) -> _Setup:
        """Prepare the data and record the environment; return what the study's `prepare` takes."""

    def _check_data(self) -> None:
        """Raise UndecidedError if no further point can be measured; called after a point was given up."""

    @property
    def steps(self) -> int:
        """Number of steps that are announced, provided that every measurement is valid."""
        return 1 + sum(_key(point, repeat) not in self._done for point, repeat in self._all())

    def run(self, say: "Say", note: "Say" = lambda _: None) -> None:
        """Measure what is missing; the folder is readable even after an exception.

        say, note: as in `RunFolder`. A point that cannot be measured is left out, and its measurements have the reason.
        Raises PlacebenchError if no point could be measured, UndecidedError if the database is gone, GateFailedError if
        responses differ.
        """
        from placebench.compare.keep.run_folder import measure_each

        self._run.say, self._run.note = say, note
        with self._run.recorded():
            # Remove an incomplete last line, left by a killed process, so that the next measurement begins on a new
            # line.
            if self._path.is_file() and not (content := self._path.read_bytes()).endswith(b"\n"):
                self._path.write_bytes(content[: content.rfind(b"\n") + 1])
            with self._spec.prepare(self._set_up()) as measure:
                measure_each(self._missing(), lambda each: self._attempt(measure, *each), self._give_up)
            if self._failed and not self._done:
                first, reason = next(iter(self._failed.items()))
                raise PlacebenchError(f"nothing could be measured; {first}: {reason}")

    def _all(self) -> Iterator[tuple[Point, int]]:
        for repeat in range(self._spec.repeats):
            for point in in_order(self._spec.points, repeat, seed=self._seed):
                yield point, repeat

    def _missing(self) -> Iterator[tuple[Point, int]]:
        """Yield and announce each missing measurement; points that failed before are left out."""
        for point, repeat in self._all():
            if _key(point, repeat) in self._done:
                continue
            step = f"repeat {repeat + 1} of {self._spec.repeats}: {point_text(point)}"
            if point_text(point) in self._failed:
                self._run.say(f"{step}: left out, it failed before")
                continue
            self._run.begin_step("measurements", step)
            yield point, repeat

    def _attempt(self, measure: Measure, point: Point, repeat: int) -> str | None:
        """Measure a point once, and save the measurement; return why it is invalid, or None."""
        from placebench.compare.keep.run_folder import FAILURES, error_text

        is_final = False
        try:
            made = Measurement(dict(point), repeat, dict(measure(point, repeat)))
        except GateFailedError:
            raise
        except FAILURES as error:
            is_final = isinstance(error, UnmeasurableError)
            made = Measurement(dict(point), repeat, {}, error_text(error))
        append_lines(self._path, [made])
        if made.invalid is None:
            self._done.add(_key(point, repeat))
        elif (failure := f"{point_text(point)} failed: {made.invalid}") not in self._noted:
            self._noted.add(failure)
            self._run.note(failure)
        if is_final:
            self._give_up((point, repeat), str(made.invalid))
            return None
        return made.invalid

    def _give_up(self, measured: tuple[Point, int], reason: str) -> None:
        """Leave the point out; raises as `_check_data` does."""
        self._failed[point_text(measured[0])] = reason
        self._check_data()


def in_order(points: Sequence[Point], repeat: int, *, seed: int) -> list[Point]:
    """Return the points in the random order of this repeat; every odd repeat has the previous order reversed."""
    order = random.Random(f"{seed} {repeat // 2}").sample(list(points), len(points))
    return order if repeat % 2 == 0 else order[::-1]


def point_text(point: Point) -> str:
    """Return the point as text, such as 'variant naive, compress off, latency 50 ms'."""
    return ", ".join(map(_axis_text, point, point.values()))


def _axis_text(axis: str, value: object) -> str:
    if isinstance(value, bool):
        return f"{axis} {'on' if value else 'off'}"
    return f"{axis.removesuffix('_ms')} {value} ms" if axis.endswith("_ms") else f"{axis} {value}"


def _key(point: Point, repeat: int) -> str:
    return json.dumps([mask_document(dict(point)), repeat], sort_keys=True)


def study_kind(module: str, settings: Any, point: Any, values: Any) -> RunKind:
    """Return the run kind of the study in *module*: the types of its settings, points and values, and its report."""
    # msgspec does not check the points of a class that is derived from StudySettings[…]: they would be of any type.
    hints = get_type_hints(get_origin(settings) or settings, include_extras=True)
    checked = cast(Any, TypedDict)("Settings", {**hints, "points": list[point]})
    return RunKind(cast(Any, StudyHead)[checked], MeasuredPoint[point, values], f"{module}:results")
