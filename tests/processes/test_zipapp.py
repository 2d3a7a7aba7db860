"""placebench from a zip archive, as `python -m zipapp` makes one: what it opens by path is there."""

import os
import shutil
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path

import pytest

import placebench

SCRIPT = """
import sqlite3

sqlite3.connect(":memory:").execute("SELECT 1").fetchall()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the package alone; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("zipapp")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(placebench.__file__).parent, folder / "application" / "placebench", ignore=ignored)
    zipapp.create_archive(folder / "application", folder / "placebench.pyz", main="placebench.__main__:run")
    return folder / "placebench.pyz"


def run(folder: Path, *command: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """What a Python says in this folder, with its own cache."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("by_module", [False, True], ids=["archive", "module"])
def test_a_command_of_an_archive_records_a_child_and_writes_its_page(
    archive: Path, tmp_path: Path, by_module: bool
) -> None:
    """By `python placebench.pyz`, and by `python -m placebench` with the archive on the path; unpacked once."""
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["-m", "placebench"] if by_module else [archive]
    variables = {"PYTHONPATH": str(archive)} if by_module else {}

    for _ in range(2):
        done = run(tmp_path, *words, "profile", "run", "--out", "out", "--", sys.executable, "script.py", **variables)
        assert done.returncode == 0, done.stderr

    (unpacked,) = (tmp_path / "cache" / "placebench").iterdir()
    assert (unpacked / "placebench" / "cli.py").is_file()
    assert any(each.suffix == ".html" for each in (tmp_path / "out").rglob("*"))


def test_an_archive_that_cannot_be_unpacked_ends_with_one_line(archive: Path, tmp_path: Path) -> None:
    """It names the archive, and what to set."""
    (tmp_path / "cache").write_text("no folder")

    done = run(tmp_path, archive, "--version")

    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert str(archive) in line
    assert "XDG_CACHE_HOME" in line


def test_a_folder_that_was_interrupted_is_not_taken(archive: Path, tmp_path: Path) -> None:
    """A damaged archive leaves nothing in the cache."""
    damaged = tmp_path / "damaged.pyz"
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(damaged, "w") as part:
        for name in whole.namelist():
            part.writestr(name, whole.read(name))
        position = part.getinfo("placebench/units.py").header_offset + 80
    content = bytearray(damaged.read_bytes())
    content[position] ^= 0xFF
    damaged.write_bytes(content)

    done = run(tmp_path, damaged, "--version")

    assert done.returncode == 2
    assert [*(tmp_path / "cache" / "placebench").iterdir()] == []
