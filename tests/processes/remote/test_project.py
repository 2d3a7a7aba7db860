"""The repository that goes to another machine."""

import io
import os
from pathlib import Path

import pytest
from git_repository import commit_all, git

from placebench.errors import UsageError
from placebench.remote import project
from placebench.remote.project import Project, unpack_repository
from placebench.remote.stream import Stream


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits; a file of 3 MB that cannot be compressed is in the second alone."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / "app.py").write_text(f"{number}")
        (folder / "big").write_bytes(os.urandom(3 * 2**20) if number == 2 else b"")
        commit_all(folder, f"{number}", tag=f"v{number}")
    monkeypatch.chdir(folder)
    return folder


def unpacked(sent: Project, folder: Path) -> Path:
    """The repository as the other machine has it."""
    through = io.BytesIO()
    sent.send(Stream(io.BytesIO(), through))
    through.seek(0)
    got = Stream(through, io.BytesIO()).receive()
    assert got is not None
    (folder / "project").mkdir(parents=True)
    unpack_repository(folder / "project", *got)
    return folder / "project"


def test_the_limit_holds_for_what_is_sent(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files with a large history are refused before anything of it is sent; the line names both sizes."""
    monkeypatch.setattr(project, "MAX_BYTES", 2**20)
    through = io.BytesIO()

    with pytest.raises(
        UsageError, match=r"0 MB of files and 3 MB of history, and --host sends 1 MB at most: .*--depth"
    ):
        Project.around(repository, "plan").send(Stream(io.BytesIO(), through))
    assert through.getvalue() == b""


def test_all_revisions_arrive(repository: Path, tmp_path: Path) -> None:
    """Branches, tags and the commits between them."""
    there = unpacked(Project.around(repository, "plan"), tmp_path / "there")

    assert git(there, "log", "--format=%s", "main") == "3\n2\n1"
    assert git(there, "rev-parse", "v1", "v2", "v3", "HEAD") == git(repository, "rev-parse", "v1", "v2", "v3", "HEAD")


def test_a_shallow_clone_arrives(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the revisions that it has, as a CI job checks out, and without what it lacks."""
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    there = unpacked(Project.around(tmp_path / "shallow", "plan"), tmp_path / "there")

    assert git(there, "log", "--format=%s", "HEAD") == "3"
    assert git(there, "show", "HEAD:app.py") == "3"


def test_a_worktree_of_a_shallow_clone_arrives(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git keeps what a clone lacks in the repository, and not in the work tree."""
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    git(tmp_path / "shallow", "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    monkeypatch.chdir(tmp_path / "tree")
    there = unpacked(Project.around(tmp_path / "tree", "plan"), tmp_path / "there")

    assert git(there, "log", "--format=%s", "HEAD") == "3"
