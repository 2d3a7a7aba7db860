"""What of a matrix can be run: each point with its program and its environment, or the reason why there is none.

The key piece is `combine`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from placebench.errors import MissingExtraError, PlacebenchError
from placebench.experiment.arms import CONTROL, PLACEMENT, Arm, read_arm
from placebench.experiment.installed import Installed, look
from placebench.experiment.matrices import AXES, INSTALLED, THIS, Matrix, Point
from placebench.experiment.origins import Origin, read_origin
from placebench.experiment.versions import drivers_of, pins, versions_of
from placebench.reference.variants import variant

PORTABLE = "objects"
"""The algorithm that is written for PostgreSQL, SQLite and MariaDB alike."""


@dataclass(frozen=True)
class Combination:
    """One point, with every axis, and what runs there."""

    point: Mapping[str, Any]
    arm: Arm | None
    """None where the program is not installed; `missing` says so."""
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
        foreign, noop = self.arm is not None and not self.arm.ours, self["service"] == CONTROL
        alone = self["users"] == self["threads"] == self["processes"] == 1
        python, (driver, *_) = self.installed.python, (*drivers_of(self.arm), "")
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
        ours = self.arm is not None and self.arm.ours and self["service"] != CONTROL
        if not ours:
            return True
        chosen = variant(self["service"].partition(",")[0])
        return chosen.algorithm == PORTABLE and not (chosen.postgresql_only or chosen.revisions)

    def _has_settings(self) -> bool:
        return self.arm is not None and bool(self.arm.postgres)

    def _has_driver(self) -> bool:
        drivers = drivers_of(self.arm)
        return not drivers or "driver" in self.pinned or self._has(*drivers)

    def _has(self, *packages: str) -> bool:
        return self.installed.version(*packages) is not None

    @property
    def versions(self) -> dict[str, str | None]:
        """Of Python, the service, SQLAlchemy and the driver."""
        return versions_of(self.point, self.arm, self.installed, self.pinned)


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
        arm, missing = _arm(full["service"], placement_python)
        python = _python(full["python"], arm, matrix.folder)
        if python not in seen:
            seen[python] = look(python)
        pinned = dict(pins(full, arm))
        if arm is not None:
            arm = replace(arm, python=str(python) if python else None, origin=_with(arm.origin, tuple(pinned.values())))
        made.append((point, Combination(full, arm, seen[python], missing, pinned)))
    return made


def _with(origin: Origin | None, packages: tuple[str, ...]) -> Origin | None:
    """The same with these packages before the environment's; raises PlacebenchError for what is no version."""
    if origin is None:
        return read_origin(folder=Path(), revision=None, packages=packages)
    return replace(origin, packages=(*origin.packages, *packages))


def _arm(service: str, placement_python: Path | None) -> tuple[Arm | None, str]:
    """The program of a service, or why it is not there."""
    try:
        return read_arm(service, placement_python=placement_python), ""
    except MissingExtraError as error:
        return None, str(error)
    except PlacebenchError as error:
        if service != PLACEMENT or placement_python is not None:
            raise
        return None, str(error).removeprefix("the arm placement ")


def _python(named: str, arm: Arm | None, folder: Path) -> Path | None:
    """Of the point; where that is this one, of the program itself."""
    if named != THIS:
        return (folder / Path(named).expanduser()).absolute()
    return Path(arm.python) if arm and arm.python else None
