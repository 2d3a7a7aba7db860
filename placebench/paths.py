"""Folders that are accessed by path: inside an installed wheel, or next to the package in a checkout.

The main function is `resource_folder`.
"""

import errno
import shutil
from contextlib import suppress
from pathlib import Path

from placebench.errors import PlacebenchError

_LEAST_FREE_BYTES = 1_000_000
_PACKAGE = Path(__file__).resolve().parent
_WORKBENCH = _PACKAGE / "_workbench"


def resource_folder(name: str) -> Path:
    """Return the absolute path of the folder *name* ("schema", "loaders" or "locustfiles").

    Raises PlacebenchError if the installation does not contain the folder.
    """
    base = _WORKBENCH if _WORKBENCH.is_dir() else _PACKAGE.parent
    folder = base / name
    if not folder.is_dir():
        raise PlacebenchError(f"no folder {name!r} in {base}: reinstall placebench, or run it from a checkout")
    return folder


def is_file(path: Path) -> bool:
    """Return whether there is a file; False also for a name that no system accepts, such as one of 300 letters."""
    try:
        return path.is_file()
    except OSError:
        return False


def make_folder(folder: Path, *, error: type[PlacebenchError] = PlacebenchError) -> Path:
    """Make the folder and its missing parents, accessible to their owner only, and return the folder.

    Raises *error* if the folder cannot be made.
    """
    try:
        missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
        for parent in reversed(missing):  # pathlib makes those above it with the mode that the umask leaves
            parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise error(f"no folder can be made at {folder}: {problem.strerror}") from problem
    return folder


def make_ignored_folder(folder: Path, *, error: type[PlacebenchError] = PlacebenchError) -> Path:
    """Make the folder as `make_folder` does; a new one gets a .gitignore that keeps its contents out of commits."""
    is_new = not folder.exists()
    make_folder(folder, error=error)
    if is_new:
        (folder / ".gitignore").write_text(
            "# Measurements may hold copies of data and settings: do not commit them.\n*\n", encoding="utf-8"
        )
    return folder


def check_writable(file: Path) -> Path:
    """Return *file* if it can be written, to find out beforehand; raise PlacebenchError if it cannot."""
    try:
        is_new = not file.exists()
        if is_new or file.is_file() or file.is_dir():  # not a pipe, which would wait for somebody to read it
            file.open("a").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise PlacebenchError(f"no file can be written at {file}: {error.strerror}") from error
    return file


def name_full_folder(error: OSError, *folders: Path) -> None:
    """Make the first of *folders* whose disk has less than 1 MB left the file of *error*.

    An error that names a file, or is not one of a full disk, stays as it is: a write that fails names none.
    """
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
        return
    for folder in folders:
        with suppress(OSError):  # one that is gone or closed to us
            there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
            if shutil.disk_usage(there).free < _LEAST_FREE_BYTES:
                error.filename = str(there)
                return


def profiles_folder() -> Path:
    """Return the folder of runs: `profiles` of the checkout if the current folder is inside it, else `./profiles`."""
    checkout, here = _PACKAGE.parent, Path.cwd()
    is_inside = (checkout / "pyproject.toml").is_file() and here.is_relative_to(checkout)
    return (checkout if is_inside else here) / "profiles"
