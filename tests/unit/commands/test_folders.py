"""A run's folder gets its page however the work in it ends."""

import errno
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run

from placebench import paths
from placebench.commands.folders import reported


def test_a_run_that_failed_has_its_page_and_is_told(tmp_path: Path) -> None:
    """What was measured until then is shown, and the reason goes on."""
    folder, told = write_run(tmp_path / "run", FakeRun()), list[Path]()

    with pytest.raises(KeyboardInterrupt), reported(folder, told.append):
        raise KeyboardInterrupt

    assert (folder / "index.html").is_file()
    assert told == [folder]


def test_a_run_without_a_record_leaves_the_word_to_what_stopped_it(tmp_path: Path) -> None:
    """On a full disk not even run.json is written, and that is what the user hears of."""
    told = list[Path]()

    with pytest.raises(OSError, match="No space left"), reported(tmp_path, told.append):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert told == []
    assert list(tmp_path.iterdir()) == []


def test_only_the_folder_where_runs_land_has_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--out ./run leaves no index.html and no link beside it."""
    monkeypatch.setattr(paths, "profiles", lambda: tmp_path / "profiles")
    (tmp_path / "profiles").mkdir()
    for folder in (tmp_path / "run", tmp_path / "profiles" / "run"):
        with reported(write_run(folder, FakeRun()), lambda _: None):
            pass

    assert {path.name for path in tmp_path.iterdir()} == {"profiles", "run"}
    assert {path.name for path in (tmp_path / "profiles").iterdir()} == {"run", "index.html", "latest"}
