"""What runs on another machine."""

import io
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from placebench.remote import far_side
from placebench.remote.stream import Stream


def test_a_connection_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was cut without an end: the comparison there is interrupted."""
    monkeypatch.setattr(far_side, "_SILENCE_S", 0.1)
    done, lost = threading.Event(), threading.Event()
    monkeypatch.setattr(far_side, "_close_output", lambda: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore

    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the signal arrives in one of the two
            far_side._watch(far_side.queue.Queue(), done, lost)
            threading.Event().wait(60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert lost.is_set()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that all users share."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        monkeypatch.setattr("tempfile.tempdir", name)
        yield folder


@pytest.mark.parametrize("planted", ["folder", "link", "dangling"])
def test_a_scratch_folder_that_another_user_has_made_is_refused(shared: Path, planted: str) -> None:
    """Its name is the same for a run that is resumed, so it can be guessed: one line says whose it is; it stays."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    place = shared / "placebench-remote-0123"
    place.mkdir() if planted == "folder" else place.symlink_to(shared if planted == "link" else "nowhere")
    os.chown(place, 1234, 1234, follow_symlinks=False)

    ended = far_side._serve(Stream(io.BytesIO(), io.BytesIO()), {"bytes": 0, "place": place.name})

    assert ended["ended"] == "RunFolderError"
    assert ended["message"].startswith(f"{place} belongs to the user 1234: ")
    assert place.lstat().st_uid == 1234


def test_a_scratch_folder_that_another_session_has_made_is_refused(shared: Path) -> None:
    """The line says which one, and what to do."""
    (shared / "placebench-remote-0123").mkdir(mode=0o700)

    ended = far_side._serve(Stream(io.BytesIO(), io.BytesIO()), {"bytes": 0, "place": "placebench-remote-0123"})

    assert "is there: another session works in it" in ended["message"]
    assert (shared / "placebench-remote-0123").exists()
