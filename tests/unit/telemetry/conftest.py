"""A folder of telemetry files as two machines leave them, written by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

WriteFile = Callable[..., Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """A function that writes lines to a file of telemetry; *boot* names the clock of its machine."""

    def write(name: str, lines: Sequence[str], *, boot: str = "here", folder: str = "") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        head = f'h,{{"format_version": 1, "boot": "{boot}"}}'
        path.write_text("\n".join([head, *lines]) + "\n")
        return path

    return write
