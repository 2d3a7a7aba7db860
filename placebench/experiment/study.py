"""A survey: one question asked at many points, each measured several times in an interleaved, seeded order.

The key piece is `StudyRun`. A command says what its points are and how one of them is measured (`Question`); here
they are put in order, measured, and kept, each on the disk before the next. A sitting makes what is missing, so that
a survey that was killed is resumed with the loss of one measurement at the most. A point that fails three times in a
row is left out for the rest of the sitting, and the others go on.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from placebench.errors import DatabaseError, GateFailedError, PlacebenchError, UndecidedError
from placebench.experiment.environment import manifest
from placebench.experiment.parts import FAILURES, Say, nobody
from placebench.experiment.records import Measurement, RunHead, read_measurements
from placebench.experiment.replicate import reason_of
from placebench.experiment.run_folder import KeptHead, same_question
from placebench.runtime.postgres import Server, open_connection
from placebench.seeding import migrate_options, seed
from placebench.topology import Topology

Point = Mapping[str, Any]
Measure = Callable[[Point, int], Mapping[str, Any]]
"""Measures a point once, for the repeat of this number; what it raises of FAILURES has the point measured again."""
T = TypeVar("T")

_FILE = "measurements.jsonl"
_INVALID_IN_A_ROW = 3


class Renewed(Generic[T]):
    """What several measurements use, such as a client: begun for the first of them, and anew after one that failed."""

    def __init__(self, begin: Callable[[], AbstractContextManager[T]]) -> None:
        self._begin = begin
        self._stack = ExitStack()
        self._begun: T | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @contextmanager
    def in_use(self) -> Iterator[T]:
        """It, for one measurement; it is ended where the `with` block fails."""
        if self._begun is None:
            self._begun = self._stack.enter_context(self._begin())
        try:
            yield self._begun
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._begun = None
        self._stack.close()


class Ground:
    """What a survey stands on: a server, and one seeded database of its own with copies of it; made when asked for."""

    def __init__(self, server: Server, topology: Topology, folder: Path) -> None:
        self.server = server
        self.topology = topology
        self.folder = folder
        self._prefix = f"placebench_{folder.name.lower().replace('-', '_')}"
        self._made: dict[str, str] = {}
        self.receipt: dict[str, Any] = {}
        self.keep: Callable[..., None] = _kept_nowhere
        """Changes fields of the run's head and saves it, as `same_responses=`; while it is surveyed."""

    @property
    def seeded(self) -> str:
        """The URL of the seeded database; nobody may be connected to it while it is copied."""
        if "" not in self._made:
            self._made[""] = self.server.create_database(self._prefix)
            self.receipt = seed(self.topology, self._made[""]).to_json()
        return self._made[""]

    def seeded_with(self, trees: int, revisions: tuple[str, ...] = ()) -> str:
        """The URL of a database of the same topology with so many trees, at these optional revisions."""
        return self.seeded_as(replace(self.topology, trees=trees), revisions)

    def seeded_as(self, topology: Topology, revisions: tuple[str, ...] = ()) -> str:
        """The URL of a database of another topology, at these optional revisions."""
        if topology == self.topology and not revisions:
            return self.seeded
        if (name := f" {topology.name} {topology.trees} {revisions}") not in self._made:
            self._made[name] = url = self.server.create_database(f"{self._prefix}_{len(self._made)}")
            seed(topology, url)
            migrate_options(url, revisions)
        return self._made[name]

    def copy(self, name: str) -> str:
        """The URL of this copy of the seeded database, dropped with the server's other databases of this survey."""
        if name not in self._made:
            assert self.seeded
            self._made[name] = self.server.create_database(f"{self._prefix}_{len(self._made)}", self._prefix)
        return self._made[name]


@dataclass(frozen=True)
class Question:
    """What a command wants to know."""

    command: str
    points: tuple[Point, ...]
    repeats: int
    prepare: Callable[[Ground], AbstractContextManager[Measure]]
    """Makes ready what all points need, and yields how one is measured; what it began ends with it."""
    request: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else was asked for; kept in run.json."""
    variants: tuple[str, ...] = ()
    impossible: tuple[tuple[Point, str], ...] = ()
    """Points that cannot be measured, each with the reason."""

    def to_json(self) -> dict[str, Any]:
        """For the head of the run; the same for the same question."""
        points = [dict(point) for point in self.points]
        impossible = [{"point": dict(point), "reason": reason} for point, reason in self.impossible]
        return {**self.settings, "repeats": self.repeats, "points": points, "impossible": impossible}


class StudyRun:
    """One sitting of a survey in one folder, on one PostgreSQL server."""

    def __init__(self, question: Question, ground: Ground) -> None:
        """Raises RunFolderError when the folder holds a run of another question."""
        self._question = question
        self._ground = ground
        self._path = ground.folder / _FILE
        self._kept = KeptHead(ground.folder, same_question(ground.folder, _head(question, ground)))
        ground.keep = self._kept.save
        self._done = {_key(each.point, each.repeat) for each in read_measurements(self._path) if each.invalid is None}

    @property
    def steps(self) -> int:
        """How many steps are announced, if every measurement counts."""
        return 1 + len(list(self._missing()))

    def run(self, say: Say, note: Say = nobody) -> None:
        """Measure what is missing; the folder is readable whatever is raised.

        say: is told of each step as it begins; note: of what fails. A point that cannot be measured is left out, and
        its measurements say why. Raises PlacebenchError when no point could be measured, UndecidedError when the
        database is gone, GateFailedError when answers differ.
        """
        with self._kept.until_the_end():
            keep_whole_lines(self._path)
            say(f"seed {self._ground.topology.title}, {self._ground.topology.trees} trees")
            self._kept.begin_on(self._ground.server)
            described = manifest(self._ground.seeded)
            self._kept.stand_on(receipt=self._ground.receipt, manifest=described)
            with self._question.prepare(self._ground) as measure:
                self._measure_all(measure, say, note)

    def _measure_all(self, measure: Measure, say: Say, note: Say) -> None:
        failed: dict[str, str] = {}
        for point, repeat in list(self._missing()):
            step = f"repeat {repeat + 1} of {self._question.repeats}: {told(point)}"
            if told(point) in failed:
                say(f"{step}: left out, it failed before")
                continue
            say(step)
            reason = self._measured(measure, point, repeat, note)
            if reason is not None:
                failed[told(point)] = reason
                self._check_database()
        if failed and not self._done:
            first, reason = next(iter(failed.items()))
            raise PlacebenchError(f"nothing could be measured; {first}: {reason}")

    def _missing(self) -> Iterator[tuple[Point, int]]:
        for repeat in range(self._question.repeats):
            for point in in_order(self._question.points, repeat, seed=self._ground.topology.seed):
                if _key(point, repeat) not in self._done:
                    yield point, repeat

    def _measured(self, measure: Measure, point: Point, repeat: int, note: Say) -> str | None:
        """Measure a point once; why it cannot be measured, None where it was."""
        reason = None
        for _ in range(_INVALID_IN_A_ROW):
            try:
                made = Measurement(dict(point), repeat, dict(measure(point, repeat)))
            except GateFailedError:
                raise
            except FAILURES as error:
                made = Measurement(dict(point), repeat, {}, reason := reason_of(error))
            append_line(self._path, made)
            if made.invalid is None:
                self._done.add(_key(point, repeat))
                return None
            note(f"{told(point)} failed: {reason}")
        return reason

    def _check_database(self) -> None:
        """Raise UndecidedError where it does not answer: no other point could be measured either."""
        try:
            with open_connection(self._ground.seeded):
                pass
        except DatabaseError as error:
            raise UndecidedError(f"the database is gone: {error}") from error


def in_order(points: Sequence[Point], repeat: int, *, seed: int) -> list[Point]:
    """The points in the order of this repeat, random by *seed*; every second repeat is the one before it backwards."""
    order = random.Random(f"{seed} {repeat // 2}").sample(list(points), len(points))
    return order if repeat % 2 == 0 else order[::-1]


def told(point: Point) -> str:
    """'variant naive, latency_ms 50'."""
    return ", ".join(f"{name} {value}" for name, value in point.items())


def append_line(path: Path, made: Measurement) -> None:
    """Put one measurement at the end of the file, and wait until it is on the disk."""
    with path.open("a") as lines:
        lines.write(json.dumps(asdict(made), ensure_ascii=False) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def keep_whole_lines(path: Path) -> None:
    """Cut off a last line that a kill left without its end, so that the next one begins a line of its own."""
    if path.is_file() and not (content := path.read_bytes()).endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _kept_nowhere(**_: Any) -> None:
    """Of a ground that nobody surveys."""


def _key(point: Point, repeat: int) -> str:
    return json.dumps([dict(point), repeat], sort_keys=True)


def _head(question: Question, ground: Ground) -> RunHead:
    return RunHead(
        name=ground.folder.name,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        status="running",
        request=question.request,
        topology=ground.topology.title,
        trees=ground.topology.trees,
        seed=ground.topology.seed,
        variants=list(question.variants),
        receipt={},
        manifest={},
        settings=question.to_json(),
        same_responses={},
        command=question.command,
    )
