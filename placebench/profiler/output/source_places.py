"""The places of call sites in their repository: `repository_root`, `relative_file` and `place_of`."""

from pathlib import Path

from placebench.profiler.model.statement import Caller


def repository_root(folder: Path | None = None) -> Path:
    """Return the folder at or above *folder* (default: the current one) that has a `.git`, or else *folder* itself."""
    start = (folder or Path()).resolve()
    return next((each for each in (start, *start.parents) if (each / ".git").exists()), start)


def relative_file(file: str, root: Path) -> str | None:
    """Return *file* relative to *root*, with slashes; None if it is elsewhere, installed, or not a file."""
    path = root / file
    inside = path.is_relative_to(root) and not {"site-packages", "dist-packages", ".."} & set(path.parts)
    return path.relative_to(root).as_posix() if inside and not file.startswith("<") else None


def place_of(caller: Caller | None, root: Path) -> str:
    """Return a call site as `shop/orders.py:7 list_orders`, relative to *root* if it is inside; empty for None."""
    if caller is None:
        return ""
    file = relative_file(caller.file, root)
    return str(caller) if file is None else f"{file}:{caller.line} {caller.function}"
