"""The versions of a service's packages, asked of its own Python, and environments with others."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placebench.errors import MissingExtraError, PlacebenchError
from placebench.experiment.matrices import INSTALLED
from placebench.experiment.variants import PLACEMENT, Variant
from placebench.runtime.wsgi_servers import uwsgi_program

_ASKED = """
import importlib.metadata, importlib.util, json, platform
found = {"python": platform.python_version()}
for name in ("placebench", "openstack-placement", "sqlalchemy", "psycopg2", "psycopg2-binary", "psycopg", "gunicorn"):
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


def look(python: Path | None = None) -> Installed:
    """Ask *python* (None: this one); raises PlacebenchError for one that is missing or does not run, in one line."""
    program_path = str(python or sys.executable)
    if not Path(program_path).is_file():
        raise PlacebenchError(f"no Python at {python}: name the python of an environment")
    try:
        asked = subprocess.run([program_path, "-c", _ASKED], capture_output=True, text=True, timeout=_WITHIN_S)
        versions = dict(json.loads(asked.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise PlacebenchError(f"{python} does not say what it holds ({error}): is it Python 3.11 or later?") from error
    return Installed(program_path, versions, _has_uwsgi(python))


def _has_uwsgi(python: Path | None) -> bool:
    try:
        uwsgi_program(python)
    except MissingExtraError:
        return False
    return True


_PSYCOPG2 = ("psycopg2-binary", "psycopg2")
_PSYCOPG3 = ("psycopg",)
_OURS, _THEIRS = "placebench", "openstack-placement"


def pins(point: Mapping[str, Any], variant: Variant | None) -> Iterator[tuple[str, str]]:
    """Each axis that asks for a version, with PACKAGE==VERSION; none for a service that no package index has."""
    packages = {
        "version": _THEIRS if point["service"] == PLACEMENT else None,
        "sqlalchemy": "sqlalchemy",
        "driver": "psycopg[binary]" if drivers_of(variant) == _PSYCOPG3 else _PSYCOPG2[0],
    }
    for axis, package in packages.items():
        if package and point[axis] != INSTALLED:
            yield axis, f"{package}=={point[axis]}"


def drivers_of(variant: Variant | None) -> tuple[str, ...]:
    """The packages of which one has to be there for PostgreSQL; nobody knows those of anybody's application."""
    if variant is None or not (variant.ours or variant.name == PLACEMENT):
        return ()
    return _PSYCOPG3 if "driver:psycopg3" in variant.name else _PSYCOPG2


def versions_of(
    point: Mapping[str, Any], variant: Variant | None, installed: Installed, pinned: Mapping[str, str]
) -> dict[str, str | None]:
    """Of python, service, sqlalchemy and driver; None for what is not there, or does not say."""
    service = _OURS if variant is not None and variant.ours else _THEIRS if point["service"] == PLACEMENT else ""
    driver = _named(installed, *drivers_of(variant), pin=pinned.get("driver"))
    return {
        "python": installed.versions["python"],
        "service": _named(installed, service, pin=pinned.get("version")),
        "sqlalchemy": _version(pinned.get("sqlalchemy")) or installed.version("sqlalchemy"),
        "driver": {"postgresql": driver, "sqlite": f"sqlite {installed.version('sqlite')}"}.get(point["database"]),
    }


def _named(installed: Installed, *packages: str, pin: str | None) -> str | None:
    """'psycopg2-binary 2.9.13': the pin, or the first of the packages that is installed."""
    if pin:
        return pin.replace("[binary]", "").replace("==", " ")
    return next((f"{name} {installed.versions[name]}" for name in packages if name in installed.versions), None)


def _version(pin: str | None) -> str | None:
    return pin.partition("==")[2] if pin else None
