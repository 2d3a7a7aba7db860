"""A run's folder gets its page however the work in it ends."""

import errno
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run

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
