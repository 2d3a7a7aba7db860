"""Which combinations of a matrix can run: `combine` gives each point its variant, its Python and what is missing.

`Installed` is what one Python environment holds, read by that Python; versions that a point names are put in place
before what is installed.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from placebench.compare.what.pythons import VERSION, python_environment
from placebench.compare.what.source_checkout import Origin, read_origin
from placebench.compare.what.variants import Variant, find_variant
from placebench.errors import DatabaseError, MissingExtraError, PlacebenchError
from placebench.lab.studies.matrix_plan import AXES, INSTALLED, THIS, Matrix, Point
from placebench.lab.variants import CONTROL, PLACEMENT
from placebench.runtime.mariadb import find_mariadbd
from placebench.runtime.mod_wsgi import find_mod_wsgi
from placebench.runtime.uwsgi import has_uwsgi

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
    """By the name of the package; python and sqlite among them."""
    uwsgi: bool

    def version(self, *names: str) -> str | None:
        """The version of the first of these packages that is there."""
        return next((self.versions[name] for name in names if name in self.versions), None)

    def after(self, packages: Iterable[str]) -> Self:
        """With these, PACKAGE==VERSION, before what is installed."""
        return replace(self, versions={**self.versions, **dict(each.split("==", 1) for each in packages)})


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
        return self.missing or next((text for applies, text in self._rules() if applies and text), None)

    def _rules(self) -> Sequence[tuple[bool, str]]:
        inside, server, database = self["client"] == "in-process", self["server"], self["database"]
        foreign, noop = self.variant is not None and not self.variant.ours, self["service"] == CONTROL
        alone = self["users"] == self["threads"] == self["processes"] == 1
        python, (driver, *_) = self.installed.python, (*_drivers(self.variant), "")
        return (
            (inside and server != "none", "a client in the process has no server: it goes with server none"),
            (not inside and server == "none", "a client over http needs a server"),
            (inside and not alone, "in the process requests come one by one: users, threads and processes are 1"),
            (self._has_settings(), "settings of PostgreSQL: placebench compare has them"),
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
            (database == "mariadb", _why_no_mariadb()),
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
            (server == "mod_wsgi", _why_no_mod_wsgi(python) if server == "mod_wsgi" else ""),
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
            (
                not foreign and not self._has("placebench"),
                f"no placebench: {python} -m pip install placebench[bench]",
            ),
            (
                database == "postgresql" and not noop and not self._has_driver(),
                f"no driver in it: {python} -m pip install {driver}",
            ),
        )

    def _in_event_loop(self) -> bool:
        return self.variant is not None and self.variant.interface == "asgi"

    def _has_settings(self) -> bool:
        return self.variant is not None and bool(self.variant.postgres)

    def _has_driver(self) -> bool:
        drivers = _drivers(self.variant)
        return not drivers or "driver" in self.pinned or self._has(*drivers)

    def _has(self, *packages: str) -> bool:
        return self.installed.version(*packages) is not None

    @property
    def versions(self) -> dict[str, str | None]:
        """Of Python, the service, SQLAlchemy and the driver; None for what is not there, or does not say."""
        is_ours, is_placement = self.variant is not None and self.variant.ours, self["service"] == PLACEMENT
        service = _OURS if is_ours else _THEIRS if is_placement else ""
        installed, pinned = self.installed, self.pinned
        return {
            "python": installed.versions["python"],
            "service": _named(installed, service, pin=pinned.get("version")),
            "sqlalchemy": _version(pinned.get("sqlalchemy")) or installed.version("sqlalchemy"),
            "driver": {
                "postgresql": _named(installed, *_drivers(self.variant), pin=pinned.get("driver")),
                "mariadb": _named(installed, _PYMYSQL, pin=None),
                "sqlite": f"sqlite {installed.version('sqlite')}",
            }.get(self["database"]),
        }


def _why_no_mariadb() -> str:
    """Why no MariaDB can be started; empty where one can."""
    try:
        find_mariadbd()
    except DatabaseError as error:
        return str(error)
    return ""


@cache
def _why_no_mod_wsgi(python: str) -> str:
    """The same for Apache with mod_wsgi for this Python."""
    try:
        find_mod_wsgi(Path(python))
    except MissingExtraError as error:
        return str(error)
    return ""


def _is_before(version: str, first: tuple[int, ...]) -> bool:
    """Whether a version, or "installed", is one of numbers before *first*."""
    numbers = [int(part) for part in version.split(".")[: len(first)] if part.isdecimal()]
    return len(numbers) == len(first) and tuple(numbers) < first


def combine(matrix: Matrix, *, placement_python: Path | None = None) -> list[tuple[Point, Combination]]:
    """Return every point of the matrix in its order; each environment is inspected once.

    Raises VariantError for a service that does not exist, PlacebenchError for a Python that does not run or a version
    that is none.
    """
    environment, installed = cache(partial(_environment, matrix.folder)), cache(_installed)
    made = []
    for point in matrix.points:
        full = {**AXES, **point}
        variant, missing = find_variant(full["service"], matrix.tables, placement_python=placement_python)
        python, absent = environment(full["python"], variant.python if variant else None)
        pinned = dict(_pins(full, variant))
        there = installed(python)
        if variant is not None:
            constraints = tuple(_constraints(matrix, full["version"], pinned))
            origin = _with(variant.origin, (*pinned.values(), *constraints))
            variant = replace(variant, python=str(python) if python else None, origin=origin)
            there = there.after(constraints)
        made.append((point, Combination(full, variant, there, missing or absent, pinned)))
    return made


def _constraints(matrix: Matrix, version: str, pinned: Mapping[str, str]) -> Iterator[str]:
    """PACKAGE==VERSION of all that the plan installs with this version of the service, but for what an axis names."""
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


def _with(origin: Origin | None, packages: tuple[str, ...]) -> Origin | None:
    """The same with these packages before the environment's; raises PlacebenchError for what is no version."""
    if origin is None:
        return read_origin(folder=Path(), revision=None, packages=packages)
    return replace(origin, packages=(*origin.packages, *packages))


def _environment(folder: Path, named: str, own: str | None) -> tuple[Path | None, str]:
    """The Python of the point, the service's *own* where that is this one; or None and why there is no such Python."""
    if VERSION.fullmatch(named):
        try:
            return python_environment(named), ""
        except PlacebenchError as error:
            return None, str(error)
    if named != THIS:
        return (folder / Path(named).expanduser()).absolute(), ""
    return Path(own) if own else None, ""


def _installed(python: Path | None = None) -> Installed:
    """Inspect *python* (None: this one); raises PlacebenchError for one that is missing or does not run."""
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
    """Each axis that names a version, with PACKAGE==VERSION; none for a service that no package index has."""
    packages = {
        "version": _THEIRS if point["service"] == PLACEMENT else None,
        "sqlalchemy": "sqlalchemy",
        "driver": "psycopg[binary]" if _drivers(variant) == _PSYCOPG3 else next(iter(_drivers(variant)), _PSYCOPG2[0]),
    }
    for axis, package in packages.items():
        if package and point[axis] != INSTALLED:
            yield axis, f"{package}=={point[axis]}"


def _drivers(variant: Variant | None) -> tuple[str, ...]:
    """The packages of which one has to be there for PostgreSQL; nobody knows those of anybody's application."""
    if variant is None or not (variant.ours or variant.name == PLACEMENT):
        return ()
    if "driver:asyncpg" in variant.name:
        return _ASYNCPG
    return _PSYCOPG3 if "driver:psycopg3" in variant.name else _PSYCOPG2


def _named(installed: Installed, *packages: str, pin: str | None) -> str | None:
    """'psycopg2-binary 2.9.13': the pin, or the first of the packages that is installed."""
    if pin:
        return pin.replace("[binary]", "").replace("==", " ")
    return next((f"{name} {installed.versions[name]}" for name in packages if name in installed.versions), None)


def _version(pin: str | None) -> str | None:
    return pin.partition("==")[2] if pin else None
