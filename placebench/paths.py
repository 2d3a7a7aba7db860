"""Folders that are opened by path: inside an installed wheel, or beside the package in a checkout.

The main function is `resource_folder`.
"""

from pathlib import Path

from placebench.errors import PlacebenchError

_PACKAGE = Path(__file__).resolve().parent
_WORKBENCH = _PACKAGE / "_workbench"


def resource_folder(name: str) -> Path:
    """Return the folder *name* ("schema", "loaders" or "locustfiles"), absolute.

    Raises PlacebenchError when the installation does not hold it.
    """
    base = _WORKBENCH if _WORKBENCH.is_dir() else _PACKAGE.parent
    folder = base / name
    if not folder.is_dir():
        raise PlacebenchError(f"no folder {name!r} in {base}: reinstall placebench, or run it from a checkout")
    return folder


def is_file(path: Path) -> bool:
    """Whether there is a file; False, too, for a name that no system takes, such as one of 300 letters."""
    try:
        return path.is_file()
    except OSError:
        return False


def make_folder(folder: Path, *, error: type[PlacebenchError] = PlacebenchError) -> Path:
    """Make the folder unless it is there, and those above it, each for its owner alone.

    Raises *error* where none can be made.
    """
    try:
        missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
        for each in reversed(missing):  # pathlib makes those above it with the mode that the umask leaves
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as found:
        raise error(f"no folder can be made at {folder}: {found.strerror}") from found
    return folder


def check_writable(file: Path) -> Path:
    """The same path; raises PlacebenchError where no file can be written, which is to be known before it is wanted."""
    try:
        is_new = not file.exists()
        if is_new or file.is_file() or file.is_dir():  # not a pipe, which would wait for somebody to read it
            file.open("a").close()
        if is_new:
            file.unlink()
    except OSError as found:
        raise PlacebenchError(f"no file can be written at {file}: {found.strerror}") from found
    return file


def profiles_folder() -> Path:
    """The folder where runs land: `profiles` of the checkout for commands inside of it, else `./profiles`."""
    checkout, here = _PACKAGE.parent, Path.cwd()
    is_inside = (checkout / "pyproject.toml").is_file() and here.is_relative_to(checkout)
    return (checkout if is_inside else here) / "profiles"
