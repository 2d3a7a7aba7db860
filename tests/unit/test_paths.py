"""Where something is to be written, asked before it is made."""

import errno
import os
from pathlib import Path

import pytest

from placebench.errors import PlacebenchError, RunFolderError
from placebench.paths import (
    check_writable,
    is_file,
    make_folder,
    make_ignored_folder,
    name_full_folder,
    profiles_folder,
    resource_folder,
)


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    """One that is there is as good."""
    assert [make_folder(tmp_path / "a" / "b").is_dir() for _ in range(2)] == [True, True]


def test_git_ignores_a_new_folder_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    """Only a folder that was not there gets a .gitignore, with everything in it."""
    (tmp_path / "mine").mkdir()
    for name in ("mine", "above/new"):
        make_ignored_folder(tmp_path / name)

    assert [] == list((tmp_path / "mine").iterdir())
    assert [] == list((tmp_path / "above").glob(".git*"))
    assert "*" == (tmp_path / "above/new/.gitignore").read_text().splitlines()[-1]


@pytest.mark.parametrize("folder", ["/proc/x", "/dev/null/x", f"/tmp/{'x' * 300}"])
def test_no_folder_can_be_made_there(folder: str) -> None:
    """The path, and the reason of the system."""
    with pytest.raises(RunFolderError, match=f"^no folder can be made at {folder}: [A-Z]"):
        make_folder(Path(folder), error=RunFolderError)


def test_a_file_can_be_written_and_is_not_yet(tmp_path: Path) -> None:
    """What is there keeps its content, what is not there does not come to be; a pipe is not waited for."""
    (tmp_path / "old").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for name in ("old", "new", "pipe"):
        assert tmp_path / name == check_writable(tmp_path / name)

    assert "mine" == (tmp_path / "old").read_text()
    assert ["old", "pipe"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", [".", "none/x", "x" * 300])
def test_no_file_can_be_written_there(tmp_path: Path, name: str) -> None:
    """A folder, below nothing, under a name that is too long."""
    with pytest.raises(PlacebenchError, match=f"^no file can be written at {tmp_path / name}: [A-Z]"):
        check_writable(tmp_path / name)


def test_a_name_that_is_too_long_is_no_file(tmp_path: Path) -> None:
    """Nor an error: whoever looked says what he looked for."""
    assert not is_file(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device: '/proc/self'"),
        (OSError(errno.ENOSPC, "No space left on device", "/a"), "[Errno 28] No space left on device: '/a'"),
        (OSError(errno.EACCES, "Permission denied"), "[Errno 13] Permission denied"),
    ],
)
def test_a_full_disk_is_named_by_the_folder_that_is_there(tmp_path: Path, error: OSError, text: str) -> None:
    """/proc has no free bytes; a file that the error names is not replaced, and other errors are not of a disk."""
    name_full_folder(error, tmp_path, Path("/proc/self/none/run"))

    assert text == str(error)


def test_runs_land_where_the_user_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the checkout that an editable installation is made of, unless the command runs inside of it."""
    checkout, project = tmp_path / "placebench", tmp_path / "project"
    (checkout / "docs").mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    project.mkdir()
    monkeypatch.setattr("placebench.paths._PACKAGE", checkout / "placebench")

    found = {}
    for folder in (project, checkout, checkout / "docs"):
        monkeypatch.chdir(folder)
        found[folder] = profiles_folder()

    assert {folder: each.parent for folder, each in found.items()} == {
        project: project,
        checkout: checkout,
        checkout / "docs": checkout,
    }


@pytest.mark.parametrize("name", ["schema", "loaders", "locustfiles"])
def test_a_folder_that_comes_with_the_package_is_found(name: str) -> None:
    """In a checkout and in an installed wheel it holds files."""
    assert any(resource_folder(name).iterdir())


def test_an_unknown_folder_of_the_package_is_refused() -> None:
    """One line says where it was looked for."""
    with pytest.raises(PlacebenchError, match=r"^no folder 'kitchen' in .*: reinstall placebench"):
        resource_folder("kitchen")
