"""The combinations of a matrix that can run, and their measurement: one job each, against a fresh server.

`combine` finds for each point of a matrix its variant, its Python and whatever is missing. `Installed` describes one
Python environment, inspected by that Python. `matrix_study` is the study of the combinations that can run.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from placebench.compare.load.client_process import responses_folder
from placebench.compare.load.clients import HttpClient, app_client, http_client
from placebench.compare.load.load_run import JobResult, http_job
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.pythons import VERSION, python_environment
from placebench.compare.what.source_checkout import read_origin
from placebench.compare.what.variants import Variant, find_variant
from placebench.errors import DatabaseError, MissingExtraError, PlacebenchError
from placebench.lab.inventory.seeding import seed
from placebench.lab.placement_api import API, count_candidates, placement_workload
from placebench.lab.studies.matrix_plan import AXES, INSTALLED, THIS, Matrix, Point
from placebench.lab.studies.study import StudySetup, StudySpec
from placebench.lab.variants import CONTROL, PLACEMENT
from placebench.meters.meters import ServerMeter
from placebench.profiler.capture.options import DEFAULT_FLAME_MODE
from placebench.runtime.application_servers import serve
from placebench.runtime.mariadb import MariaDbServer, find_mariadbd, temporary_mariadb
from placebench.runtime.mod_wsgi import find_mod_wsgi
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import open_database_link
from placebench.runtime.running_server import ServerSpec
from placebench.runtime.supervisor import Supervisor, new_scratch_path
from placebench.runtime.uwsgi import has_uwsgi
from placebench.study.application_rig import PlacedVariants
from placebench.study.session import Measure, Restartable, UnmeasurableError

_PORTABLE_TO = ("sqlite", "mariadb")
_SQLALCHEMY = (2, 1)
_PSYCOPG2 = ("psycopg2-binary", "psycopg2")
_PSYCOPG3 = ("psycopg",)
_ASYNCPG = ("asyncpg",)
_PYMYSQL = "PyMySQL"
_OURS, _THEIRS = "placebench", "openstack-placement"
_INSPECTION = """
import importlib.metadata, importlib.util, json, platform
found = {"python": platform.python_version()}
drivers = ["psycopg2", "psycopg2-binary", "psycopg", "asyncpg", "PyMySQL"]
for name in ["placebench", "openstack-placement", "sqlalchemy", *drivers, "gunicorn", "uvicorn", "granian"]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
if "placebench" not in found and importlib.util.find_spec("placebench"):
    import placebench
    found["placebench"] = placebench.__version__
import sqlite3
found["sqlite"] = sqlite3.sqlite_version
print(json.dumps(found))
"""
_WITHIN_S = 60.0


@dataclass(frozen=True)
class Installed:
    """The environment of one Python."""

    python: str
    versions: Mapping[str, str]
    """Installed versions by package name, including python and sqlite."""
    uwsgi: bool

    def version(self, *names: str) -> str | None:
        """Return the version of the first of these packages that is installed; None if none is."""
        return next((self.versions[name] for name in names if name in self.versions), None)

    def after(self, packages: Iterable[str]) -> Self:
        """Return the environment with the *packages* (PACKAGE==VERSION) taking precedence over installed ones."""
        return replace(self, versions={**self.versions, **dict(each.split("==", 1) for each in packages)})


@dataclass(frozen=True)
class Combination:
    """One point with all its axes, and the variant and environment that serve it."""

    point: Mapping[str, Any]
    variant: Variant | None
    """The variant; None if it is not installed, which `missing` explains."""
    installed: Installed
    missing: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """PACKAGE==VERSION by axis, installed on top of the environment."""

    def __getitem__(self, axis: str) -> Any:
        return self.point[axis]

    @property
    def name(self) -> str:
        """The combination as messages about its responses name it."""
        return f"{self['service']} ({self['server']}, {self['database']})"

    @property
    def reason(self) -> str | None:
        """The reason why the combination cannot run; None if it can."""
        return self.missing or next((text for applies, text in self._rules() if applies and text), None)

    def _rules(self) -> Sequence[tuple[bool, str]]:
        inside, server, database = self["client"] == "in-process", self["server"], self["database"]
        foreign, noop = self.variant is not None and not self.variant.ours, self["service"] == CONTROL
        alone = self["users"] == self["threads"] == self["processes"] == 1
        python, drivers = self.installed.python, _drivers(self.variant)
        no_driver = bool(drivers) and "driver" not in self.pinned and not self._has(*drivers)
        return (
            (inside and server != "none", "a client in the process has no server: it goes with server none"),
            (not inside and server == "none", "a client over http needs a server"),
            (inside and not alone, "in the process requests come one by one: users, threads and processes are 1"),
            (
                self.variant is not None and bool(self.variant.postgres),
                "settings of PostgreSQL: placebench compare has them",
            ),
            (
                self["version"] != INSTALLED and "version" not in self.pinned and not noop,
                f"no version of {self['service']} is on the package index: name a python, or a table with app and rev",
            ),
            (not foreign and _is_before(self["sqlalchemy"], _SQLALCHEMY), "placebench needs SQLAlchemy 2.1 or later"),
            (database == "sqlite" and self["driver"] != INSTALLED, "SQLite's driver is Python's own: name a python"),
            (database == "mariadb" and self["driver"] != INSTALLED, "driver is PostgreSQL's: name a python instead"),
            (server == "wsgiref" and self["processes"] > 1, "wsgiref serves in one process"),
            (
                self["latency_ms"] > 0 and database not in ("postgresql", "mariadb"),
                f"latency_ms is that of the way to a database on a network: database {database} has none",
            ),
            (database == "none" and not noop, f"{self['service']} needs a database"),
            (
                database in _PORTABLE_TO and not (self.variant is None or self.variant.portable),
                f"{self['service']} runs on PostgreSQL alone",
            ),
            (database == "mariadb", _why_absent(find_mariadbd)),
            (
                database == "mariadb" and not self._has(_PYMYSQL),
                f"no driver for MariaDB in it: {python} -m pip install {_PYMYSQL}",
            ),
            (
                self["service"] == PLACEMENT and "version" not in self.pinned and not self._has(_THEIRS),
                f"no Placement: {python} -m pip install {_THEIRS}, or name a version",
            ),
            (self["profiler"] != "off" and foreign, f"the profiler is not installed in {self['service']}"),
            (server == "uwsgi" and not self.installed.uwsgi, f"no uwsgi there: {python} -m pip install pyuwsgi"),
            (server == "mod_wsgi", _why_no_mod_wsgi(Path(python)) if server == "mod_wsgi" else ""),
            (
                self._in_event_loop() and server not in ("uvicorn", "granian"),
                f"{self['service']} runs in an event loop: it goes with server uvicorn or granian",
            ),
            (
                server == "uvicorn" and not self._in_event_loop(),
                "uvicorn serves event loops: it goes with driver:asyncpg or driver:psycopg3_async",
            ),
            (
                server in ("gunicorn", "uvicorn", "granian") and not self._has(server),
                f"no {server}: {python} -m pip install {server}",
            ),
            (not foreign and not self._has("placebench"), f"no placebench: {python} -m pip install placebench[bench]"),
            (
                database == "postgresql" and not noop and no_driver,
                f"no driver in it: {python} -m pip install {next(iter(drivers), '')}",
            ),
        )

    def _in_event_loop(self) -> bool:
        return self.variant is not None and self.variant.interface == "asgi"

    def _has(self, *packages: str) -> bool:
        return self.installed.version(*packages) is not None

    @property
    def versions(self) -> dict[str, str | None]:
        """The versions of Python, the service, SQLAlchemy and the driver; None if missing or unknown."""
        is_ours, is_placement = self.variant is not None and self.variant.ours, self["service"] == PLACEMENT
        service = _OURS if is_ours else _THEIRS if is_placement else ""
        installed, pinned = self.installed, self.pinned
        return {
            "python": installed.versions["python"],
            "service": _named(installed, service, pin=pinned.get("version")),
            "sqlalchemy": pinned.get("sqlalchemy", "").partition("==")[2] or installed.version("sqlalchemy"),
            "driver": {
                "postgresql": _named(installed, *_drivers(self.variant), pin=pinned.get("driver")),
                "mariadb": _named(installed, _PYMYSQL, pin=None),
                "sqlite": f"sqlite {installed.version('sqlite')}",
            }.get(self["database"]),
        }


def _why_absent(find: Callable[..., object], *places: Path) -> str:
    """Return why a program is not found; empty if it is found."""
    try:
        find(*places)
    except (DatabaseError, MissingExtraError) as error:
        return str(error)
    return ""


_why_no_mod_wsgi = cache(partial(_why_absent, find_mod_wsgi))
"""The reason why mod_wsgi is missing; cached, because the check starts the Python that it inspects."""


def _is_before(version: str, first: tuple[int, ...]) -> bool:
    """Return whether *version* is numeric and lower than *first*; False for "installed"."""
    numbers = [int(part) for part in version.split(".")[: len(first)] if part.isdecimal()]
    return len(numbers) == len(first) and tuple(numbers) < first


def combine(matrix: Matrix, *, placement_python: Path | None = None) -> list[tuple[Point, Combination]]:
    """Return every point of the matrix with its combination, in order; each environment is inspected once.

    Raises VariantError if a service does not exist, PlacebenchError if a Python does not run or a version is not valid.
    """
    environment, installed = cache(partial(_environment, matrix.folder)), cache(_installed)
    made = []
    for point in matrix.points:
        full = {**AXES, **point}
        variant, missing = find_variant(full["service"], matrix.tables, python=placement_python)
        python, absent = environment(full["python"], variant.python if variant else None)
        pinned = dict(_pins(full, variant))
        there = installed(python)
        if variant is not None:
            constraints = tuple(_constraints(matrix, full["version"], pinned))
            packages, origin = (*pinned.values(), *constraints), variant.origin
            if origin is None:
                origin = read_origin(folder=Path(), revision=None, packages=packages)
            else:
                origin = replace(origin, packages=(*origin.packages, *packages))
            variant = replace(variant, python=str(python) if python else None, origin=origin)
            there = there.after(constraints)
        made.append((point, Combination(full, variant, there, missing or absent, pinned)))
    return made


def _constraints(matrix: Matrix, version: str, pinned: Mapping[str, str]) -> Iterator[str]:
    """Yield PACKAGE==VERSION for all packages to be installed with this version, except those that an axis names."""
    if "version" not in pinned or version not in matrix.constraints:
        return
    path = matrix.folder / matrix.constraints[version]
    named = {pin.partition("==")[0] for pin in pinned.values()}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PlacebenchError(f"{path}, the constraints of version {version}, cannot be read: {error}") from error
    yield from (
        line for line in map(str.strip, lines) if line and line[0] != "#" and line.partition("==")[0] not in named
    )


def _environment(folder: Path, named: str, own: str | None) -> tuple[Path | None, str]:
    """Return the point's Python (*own*, the service's, for "this"), or None and why there is no such Python."""
    if VERSION.fullmatch(named):
        try:
            return python_environment(named), ""
        except PlacebenchError as error:
            return None, str(error)
    if named != THIS:
        return (folder / Path(named).expanduser()).absolute(), ""
    return Path(own) if own else None, ""


def _installed(python: Path | None = None) -> Installed:
    """Inspect *python* (None: the current one); raise PlacebenchError if it is missing or does not run."""
    program_path = str(python or sys.executable)
    if not Path(program_path).is_file():
        raise PlacebenchError(f"no Python at {python}: name the python of an environment")
    try:
        ended = subprocess.run([program_path, "-c", _INSPECTION], capture_output=True, text=True, timeout=_WITHIN_S)
        versions = dict(json.loads(ended.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise PlacebenchError(f"{python} does not say what it holds ({error}): is it Python 3.11 or later?") from error
    return Installed(program_path, versions, has_uwsgi(python))


def _pins(point: Mapping[str, Any], variant: Variant | None) -> Iterator[tuple[str, str]]:
    """Yield each axis that names a version, with PACKAGE==VERSION; a service without a package on an index has none."""
    packages = {
        "version": _THEIRS if point["service"] == PLACEMENT else None,
        "sqlalchemy": "sqlalchemy",
        "driver": "psycopg[binary]" if _drivers(variant) == _PSYCOPG3 else next(iter(_drivers(variant)), _PSYCOPG2[0]),
    }
    for axis, package in packages.items():
        if package and point[axis] != INSTALLED:
            yield axis, f"{package}=={point[axis]}"


def _drivers(variant: Variant | None) -> tuple[str, ...]:
    """Return alternative driver packages of which PostgreSQL needs one; empty for a user's application."""
    if variant is None or not (variant.ours or variant.name == PLACEMENT):
        return ()
    if "driver:asyncpg" in variant.name:
        return _ASYNCPG
    return _PSYCOPG3 if "driver:psycopg3" in variant.name else _PSYCOPG2


def _named(installed: Installed, *packages: str, pin: str | None) -> str | None:
    """Return the pinned package, or the first installed one, such as 'psycopg2-binary 2.9.13'; None without one."""
    if pin:
        return pin.replace("[binary]", "").replace("==", " ")
    return next((f"{name} {installed.versions[name]}" for name in packages if name in installed.versions), None)


# --- the measurement


_MODES = {"off": "", "light": "light", "full": DEFAULT_FLAME_MODE}


def matrix_study(
    matrix: Matrix, combinations: list[tuple[Point, Combination]], *, request: str, repeats: int
) -> StudySpec:
    """Return the study that measures the combinations that can run.

    Raises PlacebenchError, with the first reason, if no combination can run.
    """
    wanted = matrix.combinations
    judged = [(point, each, each.reason) for point, each in combinations]
    possible = [(point, each) for point, each, reason in judged if reason is None]
    if not possible:
        raise PlacebenchError(f"nothing in the matrix {matrix.name} can be run: {judged[0][2]}")

    @contextmanager
    def prepare(setup: StudySetup) -> Iterator[Measure]:
        scratch = new_scratch_path("placebench-matrix-")
        with Supervisor(scratch), ExitStack() as stack, Restartable(lambda: http_client(setup.folder)) as client:
            rig = _Rig(setup, request, scratch, client, stack)
            yield lambda point, repeat: rig.measure(next(each for other, each in possible if other == point), repeat)

    return StudySpec(
        "matrix",
        tuple(point for point, _ in possible),
        repeats,
        prepare,
        request,
        settings={
            "matrix": matrix.name,
            "title": matrix.title,
            "control": dict(matrix.control),
            "columns": matrix.columns,
            "usual": dict(AXES),
            "applications": {
                point["service"]: each.variant.to_json()
                for point, each in combinations
                if each.variant is not None and point.get("service") in matrix.tables.variants
            },
            "versions": [{"point": point, **each.versions} for point, each in possible],
        },
        variants=tuple(dict.fromkeys(each["service"] for _, each in possible)),
        impossible=tuple((point, reason) for point, _, reason in judged if reason and point in wanted),
    )


class _Rig:
    """The data, the client and the reference responses, which all measurements of one session share."""

    def __init__(
        self, setup: StudySetup, request: str, scratch: Path, client: Restartable[HttpClient], stack: ExitStack
    ) -> None:
        self._setup, self._request, self._scratch, self._client = setup, request, scratch, client
        self._stack, self._placed = stack, PlacedVariants(scratch / "sources", stack)
        self._mariadb: MariaDbServer | None = None
        self._seeded: dict[tuple[str, int], str] = {}
        self._same: dict[int, SameResponses] = {}

    def measure(self, combination: Combination, repeat: int) -> dict[str, Any]:
        """Return duration and CPU seconds of the whole job, and the number of its results.

        Raises GateFailedError if a response differs, LoadError if a request failed, ServerError if the combination does
        not start, UnmeasurableError if it could not be installed.
        """
        assert combination.variant is not None
        try:
            variant = self._placed.variant(combination.variant)
        except PlacebenchError as error:
            raise UnmeasurableError(str(error)) from error
        trees, profiles = combination["trees"], self._scratch / "profiles"
        url = self._database(combination["database"], trees, variant.revisions)
        # A variant with its own request has responses of its own.
        same = None if variant.request else self._same.setdefault(trees, self._setup.same_responses())
        with self._far(combination, url) as far_url:
            spec = variant.spec(
                far_url, hash_seed=repeat, log=self._setup.folder / "log" / f"{combination['server']}.log"
            )
            profile = _MODES[combination["profiler"]]
            profiled = {"PLACEBENCH_PROFILE": profile, "PLACEBENCH_PROFILE_DIR": str(profiles)} if profile else {}
            spec = replace(
                spec,
                processes=combination["processes"],
                threads=combination["threads"],
                environment={**spec.environment, **profiled},
            )
            job = self._inside if combination["client"] == "in-process" else self._over_http
            done = job(combination, spec, variant.request or self._request, url, same)
        if same:
            same.check_bodies(combination.name, self._request, done.digests, responses_folder(self._setup.folder))
        shutil.rmtree(profiles, ignore_errors=True)
        return {
            "duration_s": done.duration_s,
            "cpu_s": done.cpu_s,
            "client_cpu_s": None if combination["client"] == "in-process" else done.client_cpu_s,
            "body_bytes": done.body_bytes,
            "results": combination["requests"] * count_candidates(same.first_response(self._request) if same else None),
        }

    @contextmanager
    def _far(self, combination: Combination, url: str) -> Iterator[str]:
        """Yield the URL of the database for the service: over the emulated network, if the point has latency."""
        if not combination["latency_ms"]:
            yield url
            return
        log = self._setup.folder / "log" / "link.log"
        with open_database_link(url, proxies=combination["proxies"], log=log) as link:
            link.set_profile(LinkProfile(combination["latency_ms"] / 1e3))
            yield link.url

    def _over_http(
        self, combination: Combination, spec: ServerSpec, request: str, near_url: str, same: SameResponses | None
    ) -> JobResult:
        """Run the job over HTTP; *near_url*: the database without latency, to read the CPU of its backends."""
        with self._client.in_use() as client, serve(spec, combination["server"]) as server:
            if same:
                same.request(combination.name, request, server.url)
            done = http_job(
                server,
                request,
                workload=placement_workload(request),
                client=client,
                requests=combination["requests"],
                users=combination["users"],
                slots=spec.processes * spec.threads,
                meter=ServerMeter(server.metered_pids, near_url),
                folder=self._setup.folder,
            )
            server.check()
        return done

    def _inside(
        self, combination: Combination, spec: ServerSpec, request: str, near_url: str, same: SameResponses | None
    ) -> JobResult:
        python = str(spec.python or sys.executable)
        with app_client(python, spec.module, spec.variables(), self._setup.folder, api=API) as app:
            if same:
                same.request_by(combination.name, request, app.body)
            app.drive([request] * 2)
            with ServerMeter(lambda: [app.pid], near_url) as meter:
                driven = app.drive([request] * combination["requests"])
        return JobResult.of_client(driven, meter.read())

    def _database(self, kind: str, trees: int, revisions: tuple[str, ...]) -> str:
        """Return the URL of the database of *kind* with that many trees; for "none" a file that is never opened."""
        if kind == "none":
            return f"sqlite:///{self._scratch}/none.db"
        if kind == "postgresql":
            return self._setup.data.with_trees(trees, revisions)
        if (kind, trees) not in self._seeded:
            url = f"sqlite:///{self._scratch}/{trees}.db"
            if kind == "mariadb":
                self._mariadb = self._mariadb or self._stack.enter_context(temporary_mariadb())
                url = self._mariadb.database(f"trees_{trees}")
            seed(replace(self._setup.data.topology, trees=trees), url, loader="sql")
            self._seeded[kind, trees] = url
        return self._seeded[kind, trees]
