"""Files that are written whole or not at all, and the names of the files of a recording."""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast


def with_slashes(path: str) -> str:
    """Return a path of Windows with / between its parts, as recordings have it everywhere; other paths unchanged."""
    return path.replace("\\", "/") if path[1:3] == ":\\" or path.startswith("\\\\") else path


def write_whole(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file atomically: readers never see a part of it, even if the process is killed.

    private: only the owner of the file may read it.
    """
    with writing_whole(path, private=private) as file:
        file.write(text)


@contextmanager
def writing_whole(path: Path, *, private: bool = False) -> Iterator[TextIO]:
    """Open a file for writing that appears only once it is complete; compressed if its name ends with .gz."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        if private:
            make_private(unfinished)
        with cast(TextIO, opened(unfinished, "wt", encoding="utf-8")) as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def make_private(path: Path) -> None:
    """Make an empty file that its owner alone can read, in place of whatever was there."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def is_recording(path: Path) -> bool:
    """Return whether the file at *path* is a recording, of whatever version of placebench."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"format_version", "statements"} <= document.keys()


def flame_graph_beside(path: Path) -> Path:
    """Return the path of a recording's flame graph: 7-1.recording.json has 7-1.pyisession beside it."""
    return path.with_name(f"{path.name.removesuffix('.json').removesuffix('.recording')}.pyisession")
