"""What the CI job of a project has to know: its Python, how it is installed, and where placebench itself comes from."""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Literal

from placebench.errors import UsageError

ServiceName = Literal["github", "gitlab"]


@dataclass(frozen=True)
class CiProject:
    """The facts about a project that its CI job is written with."""

    python: str
    """The version of Python, such as "3.12"."""
    install: tuple[str, ...]
    """Shell commands that install the application."""
    interpreter: str
    """A shell word for the Python that the application is installed in."""
    lock_file: str
    """The file whose change makes the cache of packages stale."""
    counted_by: Literal["proxy", "profiler", "nothing"] = "proxy"
    """What counts its statements: the proxy before its database, the profiler in the application, or nothing."""


def read_project(folder: Path) -> CiProject:
    """Return the facts about the project in *folder*.

    Raises UsageError if its pyproject.toml does not describe the application to placebench, because then no comparison
    would start.
    """
    path = folder / "pyproject.toml"
    document = _read_toml(path)
    described = document.get("tool", {}).get("placebench", {})
    if "app" not in described:
        raise UsageError(
            f"{path} has no table [tool.placebench.app]: describe the application first, with its requests and data "
            "(docs/howto/compare.md)"
        )
    install, interpreter, lock_file = _installation(folder, document)
    named = described["app"].get("python", interpreter)
    if named != interpreter:  # the table's Python is used in the job, too, whatever --python says
        install, interpreter = _into(named, install, interpreter, path), named
    usual = "sqlite" if str(described.get("template_db", "")).startswith("sqlite") else "postgresql"
    database = described.get("database", usual)
    counted_by: Literal["proxy", "profiler", "nothing"] = "proxy"
    by_profiler = database in ("sqlite", "mariadb")
    if database == "none" or (by_profiler and "command" in described["app"]):  # the profiler enters no command
        counted_by = "nothing"
    elif by_profiler:
        counted_by = "profiler"
    return CiProject(_python(folder, document), install, interpreter, lock_file, counted_by)


def guess_service(folder: Path) -> ServiceName:
    """Return the CI service that the files and remotes of the repository in *folder* point to.

    Raises UsageError if they point to none, or to both.
    """
    git = folder / ".git" / "config"
    remotes = git.read_text(encoding="utf-8", errors="replace") if git.is_file() else ""
    signs: dict[ServiceName, bool] = {
        "github": (folder / ".github").is_dir() or "github." in remotes,
        "gitlab": (folder / ".gitlab-ci.yml").is_file() or "gitlab." in remotes,
    }
    found = [name for name, is_there in signs.items() if is_there]
    if len(found) != 1:
        seen = "files of both" if found else "no .github, .gitlab-ci.yml or remote of one"
        raise UsageError(f"github or gitlab? {folder.resolve()} has {seen}: name the service")
    return found[0]


def own_requirement() -> str:
    """Return what `pip install` is given to install this placebench with its extra bench.

    Raises UsageError if it was installed from files of this machine, which a CI job cannot reach.
    """
    installed = distribution("placebench")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if not origin:
        return f"placebench[bench]=={installed.version}"
    url, vcs = str(origin["url"]), origin.get("vcs_info")
    if url.startswith("file:") or (vcs is None and "archive_info" not in origin):
        raise UsageError(
            f"this placebench was installed from {url}, which a CI job cannot reach: give --source, such as "
            "'placebench[bench] @ git+https://HOST/OWNER/placebench@COMMIT'"
        )
    place = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return f"placebench[bench] @ {place}"


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"no {path}: call this in the folder of the project") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _installation(folder: Path, pyproject: Mapping[str, Any]) -> tuple[tuple[str, ...], str, str]:
    """Return the commands that install the application, its Python and the file that its versions are in."""
    if (folder / "uv.lock").is_file():
        return ("pip install uv", "uv sync --frozen"), ".venv/bin/python", "uv.lock"
    if (folder / "poetry.lock").is_file():
        commands = ("pip install poetry", "poetry install --no-interaction")
        return commands, '"$(poetry env info --executable)"', "poetry.lock"
    if (folder / "requirements.txt").is_file():
        return ("pip install -r requirements.txt",), '"$(command -v python)"', "requirements.txt"
    if not {"project", "build-system"} & pyproject.keys() and not (folder / "setup.py").is_file():
        raise UsageError(
            f"{folder / 'pyproject.toml'} has neither project nor build-system, and there is no uv.lock, poetry.lock, "
            "requirements.txt or setup.py: name there what a CI job has to install for the application"
        )
    return ("pip install .",), '"$(command -v python)"', "pyproject.toml"


def _into(python: str, install: tuple[str, ...], interpreter: str, path: Path) -> tuple[str, ...]:
    """Return the commands that install the application into a new environment with this *python*.

    Raises UsageError if uv or poetry makes the environment elsewhere, or if the path is not below the project.
    """
    is_below = re.fullmatch(r"[\w.-]+(/[\w.-]+)*/bin/python3?", python) and ".." not in python
    if not is_below or len(install) > 1:
        raise UsageError(
            f"{path}: [tool.placebench.app] has python = {python!r}, and the job has the application in {interpreter}: "
            "leave that key out, and give compare --python, as the job does"
        )
    return f"python -m venv {Path(python).parent.parent}", *(f"{python} -m {command}" for command in install)


def _python(folder: Path, document: Mapping[str, Any]) -> str:
    """Return the Python that the project pins, else the newest below its upper bound, else the one that runs now."""
    pinned = folder / ".python-version"
    text = pinned.read_text(encoding="utf-8") if pinned.is_file() else ""
    if found := re.match(r"\s*(3\.\d+)", text):
        return found.group(1)
    permitted = str(document.get("project", {}).get("requires-python", ""))
    if found := re.search(r"(?:==|~=|<=)\s*(3\.\d+)", permitted):
        return found.group(1)
    if found := re.search(r"<\s*3\.(\d+)", permitted):
        return f"3.{int(found.group(1)) - 1}"
    return f"{sys.version_info.major}.{sys.version_info.minor}"
