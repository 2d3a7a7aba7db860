"""Where the rooms that are opened by path lie: inside an installed wheel, or beside the package in a checkout.

The key piece is `room`.
"""

from pathlib import Path

from placebench.errors import PlacebenchError

_PACKAGE = Path(__file__).resolve().parent
_WORKBENCH = _PACKAGE / "_workbench"


def room(name: str) -> Path:
    """The folder of the room *name* ("schema", "loaders" or "locustfiles"), absolute.

    Raises PlacebenchError when the installation does not hold it.
    """
    base = _WORKBENCH if _WORKBENCH.is_dir() else _PACKAGE.parent
    folder = base / name
    if not folder.is_dir():
        raise PlacebenchError(f"no folder {name!r} in {base}: reinstall placebench, or run it from a checkout")
    return folder


def profiles() -> Path:
    """The folder where runs land: `profiles` of the checkout, or `./profiles` for an installed wheel."""
    beside = _PACKAGE.parent
    return beside / "profiles" if (beside / "pyproject.toml").is_file() else Path.cwd() / "profiles"
