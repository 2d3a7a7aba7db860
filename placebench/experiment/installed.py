"""What an environment holds: the packages that matter to a service, asked of its own Python.

The key piece is `look`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placebench.errors import MissingExtraError, PlacebenchError
from placebench.experiment.uwsgi import program

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
        program(python)
    except MissingExtraError:
        return False
    return True
