"""A matrix: which combinations can run, and each combination's job against a server of its own."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from placebench.errors import PlacebenchError, ServerError
from placebench.experiment.client_process import HttpClient, app_client, http_client, responses_folder
from placebench.experiment.http_job import JobResult, http_job
from placebench.experiment.matrices import AXES, INSTALLED, THIS, Matrix, Point
from placebench.experiment.python_environment import Installed, drivers_of, look, pins, versions_of
from placebench.experiment.same_responses import SameResponses
from placebench.experiment.source_checkout import Origin, read_origin
from placebench.experiment.study import Measure, Restartable, StudySetup, StudySpec
from placebench.experiment.variants import CONTROL, Variant, find_variant, in_place
from placebench.measure.meters import ServerMeter
from placebench.reference.variants import variant as reference_variant
from placebench.runtime.supervisor import Supervisor, new_scratch_path
from placebench.runtime.wsgi_servers import ServerSpec, serve
from placebench.seeding import seed

PORTABLE = "objects"
"""The algorithm that is written for PostgreSQL, SQLite and MariaDB alike."""


@dataclass(frozen=True)
class Combination:
    """One point, with every axis, and what runs there."""

    point: Mapping[str, Any]
    variant: Variant | None
    """None where it is not installed; `missing` says so."""
    installed: Installed
    missing: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """PACKAGE==VERSION by its axis, put in place before what is installed."""

    def __getitem__(self, axis: str) -> Any:
        return self.point[axis]

    @property
    def reason(self) -> str | None:
        """Why it cannot be run; None when it can."""
        return self.missing or next((text for applies, text in self._rules() if applies), None)

    def _rules(self) -> Sequence[tuple[bool, str]]:
        inside, server, database = self["client"] == "in-process", self["server"], self["database"]
        foreign, noop = self.variant is not None and not self.variant.ours, self["service"] == CONTROL
        alone = self["users"] == self["threads"] == self["processes"] == 1
        python, (driver, *_) = self.installed.python, (*drivers_of(self.variant), "")
        return (
            (inside and server != "none", "a client in the process has no server: it goes with server none"),
            (not inside and server == "none", "a client over http needs a server"),
            (inside and not alone, "in the process requests come one by one: users, threads and processes are 1"),
            (self._has_settings(), "settings of PostgreSQL: placebench compare has them"),
            (
                self["version"] != INSTALLED and "version" not in self.pinned and not noop,
                f"no version of {self['service']} is on the package index: name a python, or app=…,rev=REVISION",
            ),
            (not foreign and _is_before(self["sqlalchemy"], _SQLALCHEMY), "placebench needs SQLAlchemy 2.1 or later"),
            (database == "sqlite" and self["driver"] != INSTALLED, "SQLite's driver is Python's own: name a python"),
            (server == "wsgiref" and self["processes"] > 1, "wsgiref serves in one process"),
            (database == "none" and not noop, f"{self['service']} needs a database"),
            (database == "sqlite" and not self._portable(), f"{self['service']} runs on PostgreSQL alone"),
            (self["profiler"] != "off" and foreign, f"the profiler is not installed in {self['service']}"),
            (server == "uwsgi" and not self.installed.uwsgi, f"no uwsgi there: {python} -m pip install pyuwsgi"),
            (server == "gunicorn" and not self._has("gunicorn"), f"no gunicorn: {python} -m pip install gunicorn"),
            (
                not foreign and not self._has("placebench"),
                f"no placebench: {python} -m pip install placebench[bench]",
            ),
            (
                database == "postgresql" and not noop and not self._has_driver(),
                f"no driver in it: {python} -m pip install {driver}",
            ),
        )

    def _portable(self) -> bool:
        ours = self.variant is not None and self.variant.ours and self["service"] != CONTROL
        if not ours:
            return True
        chosen = reference_variant(self["service"].partition(",")[0])
        return chosen.algorithm == PORTABLE and not (chosen.postgresql_only or chosen.revisions)

    def _has_settings(self) -> bool:
        return self.variant is not None and bool(self.variant.postgres)

    def _has_driver(self) -> bool:
        drivers = drivers_of(self.variant)
        return not drivers or "driver" in self.pinned or self._has(*drivers)

    def _has(self, *packages: str) -> bool:
        return self.installed.version(*packages) is not None

    @property
    def versions(self) -> dict[str, str | None]:
        """Of Python, the service, SQLAlchemy and the driver."""
        return versions_of(self.point, self.variant, self.installed, self.pinned)


_SQLALCHEMY = (2, 1)


def _is_before(version: str, first: tuple[int, ...]) -> bool:
    """Whether a version, or "installed", is one of numbers before *first*."""
    numbers = [int(part) for part in version.split(".")[: len(first)] if part.isdecimal()]
    return len(numbers) == len(first) and tuple(numbers) < first


def combine(matrix: Matrix, *, placement_python: Path | None = None) -> list[tuple[Point, Combination]]:
    """Every point of the matrix in its order; each environment is asked once.

    Raises VariantError for a service that does not exist, PlacebenchError for a Python that does not run or a version
    that is none.
    """
    seen: dict[Path | None, Installed] = {}
    made = []
    for point in matrix.points:
        full = {**AXES, **point}
        variant, missing = find_variant(full["service"], placement_python)
        python = _python(full["python"], variant, matrix.folder)
        if python not in seen:
            seen[python] = look(python)
        pinned = dict(pins(full, variant))
        if variant is not None:
            variant = replace(
                variant, python=str(python) if python else None, origin=_with(variant.origin, tuple(pinned.values()))
            )
        made.append((point, Combination(full, variant, seen[python], missing, pinned)))
    return made


def _with(origin: Origin | None, packages: tuple[str, ...]) -> Origin | None:
    """The same with these packages before the environment's; raises PlacebenchError for what is no version."""
    if origin is None:
        return read_origin(folder=Path(), revision=None, packages=packages)
    return replace(origin, packages=(*origin.packages, *packages))


def _python(named: str, variant: Variant | None, folder: Path) -> Path | None:
    """Of the point; where that is this one, of the service itself."""
    if named != THIS:
        return (folder / Path(named).expanduser()).absolute()
    return Path(variant.python) if variant and variant.python else None


LOADERS = {"postgresql": "copy", "sqlite": "sql"}
"""By which a database is filled; by_copy is PostgreSQL's own, by_sql runs on both."""
_Key = tuple[tuple[str, Any], ...]
_MODES = {"off": "", "light": "light", "full": "flame"}


def matrix_study(
    matrix: Matrix, combinations: list[tuple[Point, Combination]], *, request: str, repeats: int
) -> StudySpec:
    """Return the study that measures what of the matrix can be run.

    Raises PlacebenchError where nothing can, with the first reason.
    """
    asked = matrix.combinations
    reasons = [(point, each.reason) for point, each in combinations]
    possible = tuple(point for point, reason in reasons if reason is None)
    if not possible:
        raise PlacebenchError(f"nothing in the matrix {matrix.name} can be run: {reasons[0][1]}")
    variants = {key(point): each for point, each in combinations}

    @contextmanager
    def prepare(setup: StudySetup) -> Iterator[Measure]:
        scratch = new_scratch_path("placebench-matrix-")
        with (
            Supervisor(scratch),
            _standing(variants, scratch / "sources") as standing,
            Restartable(lambda: http_client(setup.folder)) as client,
        ):
            rig = Rig(setup, request, scratch, client)
            yield lambda point, repeat: rig.measure(standing[key(point)], repeat)

    return StudySpec(
        "matrix",
        possible,
        repeats,
        prepare,
        request,
        settings={
            "matrix": matrix.name,
            "title": matrix.title,
            "control": dict(matrix.control),
            "usual": dict(AXES),
            "versions": [{"point": point, **variants[key(point)].versions} for point in possible],
        },
        variants=tuple(dict.fromkeys(variants[key(point)]["service"] for point in possible)),
        impossible=tuple((point, reason) for point, reason in reasons if reason and point in asked),
    )


def key(point: Mapping[str, Any]) -> _Key:
    """The point as something to look up by."""
    return tuple(sorted(point.items()))


@contextmanager
def _standing(combinations: Mapping[_Key, Combination], folder: Path) -> Iterator[Mapping[_Key, Combination]]:
    """Those that can be run, their revisions and versions put in place, each once however many points have it.

    One that could not be put in place says so in `missing`.
    """
    runs = {name: each for name, each in combinations.items() if each.reason is None}
    variants = [each.variant for each in runs.values() if each.variant is not None]
    each_once = [variant for number, variant in enumerate(variants) if variant not in variants[:number]]
    with ExitStack() as stack:
        placed = [_placed(variant, folder / str(number), stack) for number, variant in enumerate(each_once)]
        yield {
            name: replace(each, **placed[each_once.index(each.variant)]) for name, each in runs.items() if each.variant
        }


def _placed(variant: Variant, folder: Path, stack: ExitStack) -> dict[str, Any]:
    """What its combinations have then: the variant that can be served, or in `missing` why there is none."""
    try:
        (placed,) = stack.enter_context(in_place((variant,), folder))
    except PlacebenchError as error:
        return {"missing": str(error)}
    return {"variant": placed}


class Rig:
    """What the measurements of one sitting share: the data, the client, and what was answered."""

    def __init__(self, setup: StudySetup, request: str, scratch: Path, client: Restartable[HttpClient]) -> None:
        self._setup, self._request, self._scratch, self._client = setup, request, scratch, client
        self._files: dict[int, str] = {}
        self._same: dict[int, SameResponses] = {}

    def measure(self, combination: Combination, repeat: int) -> dict[str, Any]:
        """Duration and CPU of the whole job, in seconds, and how many results came.

        Raises GateFailedError for an answer that differs, LoadError for a request that failed, ServerError for a
        combination that could not be put in place or does not start.
        """
        if combination.missing:
            raise ServerError(combination.missing)
        spec = self._spec(combination, repeat)
        measured = self._inside(combination, spec) if combination["client"] == "in-process" else None
        done = measured or self._over_http(combination, spec)
        shutil.rmtree(self._profiles, ignore_errors=True)
        return {
            "duration_s": done.duration_s,
            "cpu_s": done.cpu_s,
            "body_bytes": done.body_bytes,
            "results": combination["requests"] * self._results(combination),
        }

    def _over_http(self, combination: Combination, spec: ServerSpec) -> JobResult:
        request = self._asked(combination)
        with self._client.in_use() as client, serve(spec, combination["server"]) as server:
            if same := self._same_responses(combination):
                same.request(_name(combination), self._request, server.url)
            done = http_job(
                server,
                request,
                client=client,
                requests=combination["requests"],
                users=combination["users"],
                slots=spec.processes * spec.threads,
                meter=ServerMeter(server.worker_pids, spec.database_url),
                folder=self._setup.folder,
            )
            server.check()
        return self._check(combination, done)

    def _inside(self, combination: Combination, spec: ServerSpec) -> JobResult:
        request, python = self._asked(combination), str(spec.python or sys.executable)
        with app_client(python, spec.module, spec.variables(), self._setup.folder) as app:
            if same := self._same_responses(combination):
                same.request_by(_name(combination), self._request, app.body)
            app.drive([request] * 2)
            with ServerMeter(lambda: [app.pid], spec.database_url) as meter:
                driven = app.drive([request] * combination["requests"])
        return self._check(combination, JobResult.of_client(driven, meter.read()))

    def _check(self, combination: Combination, done: JobResult) -> JobResult:
        if same := self._same_responses(combination):
            bodies = responses_folder(self._setup.folder)
            same.check_bodies(_name(combination), self._request, done.digests, bodies)
        return done

    def _same_responses(self, combination: Combination) -> SameResponses | None:
        """Of those that are asked the same of the same data; None for a variant with a request of its own."""
        if combination.variant is None or combination.variant.request is not None:
            return None
        trees = combination["trees"]
        if trees not in self._same:
            self._same[trees] = self._setup.same_responses()
        return self._same[trees]

    def _asked(self, combination: Combination) -> str:
        assert combination.variant is not None
        return combination.variant.request or self._request

    def _results(self, combination: Combination) -> int:
        """How many candidates one answer holds; 0 for what is no answer with candidates."""
        same = self._same_responses(combination)
        return same.candidates(self._request) if same else 0

    def _spec(self, combination: Combination, repeat: int) -> ServerSpec:
        assert combination.variant is not None
        url = self._database(combination["database"], combination["trees"], combination.variant.revisions)
        log = self._setup.folder / "log" / f"{combination['server']}.log"
        spec = combination.variant.spec(url, hash_seed=repeat, log=log)
        profile = _MODES[combination["profiler"]]
        profiled = {"PLACEBENCH_PROFILE": profile, "PLACEBENCH_PROFILE_DIR": str(self._profiles)} if profile else {}
        return replace(
            spec,
            processes=combination["processes"],
            threads=combination["threads"],
            environment={**spec.environment, **profiled},
        )

    @property
    def _profiles(self) -> Path:
        return self._scratch / "profiles"

    def _database(self, kind: str, trees: int, revisions: tuple[str, ...]) -> str:
        """The URL of the database of this kind with so many trees; a file that is never opened for none."""
        if kind == "none":
            return f"sqlite:///{self._scratch}/none.db"
        if kind == "postgresql":
            return self._setup.data.with_trees(trees, revisions)
        if trees not in self._files:
            url = f"sqlite:///{self._scratch}/{trees}.db"
            seed(replace(self._setup.data.topology, trees=trees), url, loader=LOADERS[kind])
            self._files[trees] = url
        return self._files[trees]


def _name(combination: Combination) -> str:
    return f"{combination['service']} ({combination['server']}, {combination['database']})"
