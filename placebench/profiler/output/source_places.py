"""Where a call site is in its repository: `repository_root`, `relative_file` and `place_of`."""

from pathlib import Path

from placebench.profiler.model.statement import Caller


def repository_root(folder: Path | None = None) -> Path:
    """The folder at or above *folder* (default: the current one) that has a `.git`; itself where none has."""
    start = (folder or Path()).resolve()
    return next((each for each in (start, *start.parents) if (each / ".git").exists()), start)


def relative_file(file: str, root: Path) -> str | None:
    """*file* from *root* on, with slashes; None if it is not in it, is an installed one, or is no file at all."""
    path = root / file
    inside = path.is_relative_to(root) and not {"site-packages", "dist-packages", ".."} & set(path.parts)
    return path.relative_to(root).as_posix() if inside and not file.startswith("<") else None


def place_of(caller: Caller | None, root: Path) -> str:
    """`shop/orders.py:7 list_orders`, from *root* on where the file is in it; empty without a call site."""
    if caller is None:
        return ""
    file = relative_file(caller.file, root)
    return str(caller) if file is None else f"{file}:{caller.line} {caller.function}"
