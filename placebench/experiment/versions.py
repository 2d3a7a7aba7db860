"""Which versions a combination of a matrix runs with: those its environment holds, or others put before them.

The key pieces are `pins`, what has to be put in place for a point, and `versions_of`, what then runs there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from placebench.experiment.arms import PLACEMENT, Arm
from placebench.experiment.installed import Installed
from placebench.experiment.matrices import INSTALLED

_PSYCOPG2 = ("psycopg2-binary", "psycopg2")
_PSYCOPG3 = ("psycopg",)
_OURS, _THEIRS = "placebench", "openstack-placement"


def pins(point: Mapping[str, Any], arm: Arm | None) -> Iterator[tuple[str, str]]:
    """Each axis that asks for a version, with PACKAGE==VERSION; none for a service that no package index has."""
    packages = {
        "version": _THEIRS if point["service"] == PLACEMENT else None,
        "sqlalchemy": "sqlalchemy",
        "driver": "psycopg[binary]" if drivers_of(arm) == _PSYCOPG3 else _PSYCOPG2[0],
    }
    for axis, package in packages.items():
        if package and point[axis] != INSTALLED:
            yield axis, f"{package}=={point[axis]}"


def drivers_of(arm: Arm | None) -> tuple[str, ...]:
    """The packages of which one has to be there for PostgreSQL; nobody knows those of anybody's application."""
    if arm is None or not (arm.ours or arm.name == PLACEMENT):
        return ()
    return _PSYCOPG3 if "driver:psycopg3" in arm.name else _PSYCOPG2


def versions_of(
    point: Mapping[str, Any], arm: Arm | None, installed: Installed, pinned: Mapping[str, str]
) -> dict[str, str | None]:
    """Of python, service, sqlalchemy and driver; None for what is not there, or does not say."""
    service = _OURS if arm is not None and arm.ours else _THEIRS if point["service"] == PLACEMENT else ""
    driver = _named(installed, *drivers_of(arm), pin=pinned.get("driver"))
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
