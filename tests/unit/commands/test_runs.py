"""A run's folder gets its page however the work in it ends."""

import errno
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run

from placebench import paths
from placebench.commands.options import RunOptions
from placebench.commands.runs import reported, run_folder
from placebench.errors import RunFolderError
from placebench.report import Report


def test_a_run_that_failed_has_its_report(tmp_path: Path) -> None:
    """What was measured until then is shown, and the reason goes on."""
    folder, reports = write_run(tmp_path / "run", FakeRun()), list[Report]()

    with pytest.raises(KeyboardInterrupt), reported(folder, reports.append):
        raise KeyboardInterrupt

    assert (folder / "index.html").is_file()
    assert [each.folder for each in reports] == [folder]


def test_a_run_without_a_record_leaves_the_word_to_what_stopped_it(tmp_path: Path) -> None:
    """On a full disk not even run.json is written, and that is what the user hears of."""
    reports = list[Report]()

    with pytest.raises(OSError, match="No space left"), reported(tmp_path, reports.append):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert reports == []
    assert list(tmp_path.iterdir()) == []


def test_only_the_folder_where_runs_land_has_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--out ./run leaves no index.html and no link beside it."""
    monkeypatch.setattr(paths, "profiles_folder", lambda: tmp_path / "profiles")
    (tmp_path / "profiles").mkdir()
    for folder in (tmp_path / "run", tmp_path / "profiles" / "run"):
        with reported(write_run(folder, FakeRun()), lambda _: None):
            pass

    assert {path.name for path in tmp_path.iterdir()} == {"profiles", "run"}
    assert {path.name for path in (tmp_path / "profiles").iterdir()} == {"run", "index.html", "latest"}


def test_a_run_that_did_not_begin_leaves_no_folder(tmp_path: Path) -> None:
    """A PostgreSQL that cannot be reached; what holds something is refused before anything is started, and stays."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("")

    with pytest.raises(ConnectionError), run_folder(RunOptions(out=tmp_path / "run", resume=False), "compare"):
        raise ConnectionError
    with pytest.raises(RunFolderError, match="is not empty"), run_folder(RunOptions(out=mine, resume=False), "compare"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes.txt"]


def test_a_run_that_began_stays(tmp_path: Path) -> None:
    """It has its head, whatever came after it."""
    with run_folder(RunOptions(out=tmp_path / "run", resume=False), "compare") as folder:
        (folder / "run.json").write_text("{}")

    assert (tmp_path / "run" / "run.json").is_file()


def test_a_folder_of_the_user_stays_where_a_run_did_not_begin(tmp_path: Path) -> None:
    """Empty as it was; only what this process made is removed."""
    with pytest.raises(ConnectionError), run_folder(RunOptions(out=tmp_path, resume=False), "compare"):
        raise ConnectionError

    assert list(tmp_path.iterdir()) == []
