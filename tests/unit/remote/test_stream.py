"""What goes through the connection to another machine."""

import io
import json
import os
import stat
from pathlib import Path

import pytest

from placebench.errors import HostError
from placebench.remote.stream import MAX_PAYLOAD_BYTES, Header, Stream, files_of_run, write_file


def sent(name: str, **more: int) -> Header:
    """The header of a file."""
    header: Header = {"bytes": 0, "file": name, "mode": 0o644, **more}  # type: ignore[typeddict-item]
    return header


@pytest.mark.parametrize(
    "name", ["../elsewhere", "/tmp/elsewhere", ".", "", "..", "a/../../b", "a/..", "a\0b", "link/b", "link"]
)
def test_a_host_writes_only_into_the_run(tmp_path: Path, name: str) -> None:
    """A file for another place is refused, and nothing is left beside the run; a link that lies there leads nowhere."""
    run = tmp_path / "run"
    (tmp_path / "outside").mkdir()
    run.mkdir()
    (run / "link").symlink_to(tmp_path / "outside")

    with pytest.raises(HostError, match="not inside"):
        write_file(run, sent(name), io.BytesIO(), links=False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "outside", "run"]


def test_a_link_is_refused(tmp_path: Path) -> None:
    """A run has none; the files of a project may."""
    with pytest.raises(HostError, match="not inside"):
        write_file(tmp_path, {"bytes": 0, "file": "a", "link": "/etc"}, io.BytesIO(), links=False)


def test_a_file_that_is_named_as_an_unfinished_one_stays(tmp_path: Path) -> None:
    """Beside `a`, a file `a.part` of the user's, or a link with that name, is neither written nor followed."""
    (tmp_path / "target").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.part").symlink_to(tmp_path / "target")

    for name, content in (("b.part", b"part"), ("a", b"theirs"), ("b", b"whole")):
        write_file(tmp_path / "run", sent(name), io.BytesIO(content), links=False)

    read = {path.name: path.read_text() for path in (tmp_path / "run").iterdir()}
    assert read == {"a": "theirs", "a.part": "mine", "b": "whole", "b.part": "part"}
    assert (tmp_path / "run" / "a.part").is_symlink()


def test_only_worktrees_and_the_lock_of_a_run_stay(tmp_path: Path) -> None:
    """Files whose names only begin as theirs do come back."""
    names = ("sources/a.py", "sources.csv", "sources-2/a.py", "log/lock", "log/locks.txt", "log/a/sources")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    found = {path.relative_to(tmp_path).as_posix() for path in files_of_run(tmp_path)}

    assert found == set(names) - {"sources/a.py", "log/lock"}


@pytest.mark.parametrize(
    ("mode", "written"), [(0o6755, 0o755), (0o644, 0o644), (0o777, 0o755), (0, 0o600), (-1, 0o755)]
)
def test_modes_that_matter_are_taken_over(tmp_path: Path, mode: int, written: int) -> None:
    """Never set-user-ID, never writable by others, and always readable here."""
    write_file(tmp_path, sent("a", mode=mode), io.BytesIO(b"x"), links=False)

    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == written


def test_a_file_in_the_place_of_a_folder_is_one_line(tmp_path: Path) -> None:
    """The system's reason stands in the line, and the unfinished file goes."""
    (tmp_path / "a").mkdir()

    with pytest.raises(HostError, match=r"'a' .* cannot be written: Is a directory"):
        write_file(tmp_path, sent("a"), io.BytesIO(b"x"), links=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b"not JSON",
        b'{"bytes": -1}',
        b'{"bytes": "1"}',
        b'{"bytes": %d}' % (MAX_PAYLOAD_BYTES + 1),
        b'{"bytes": 0, "file": ["a"]}',
        b'{"bytes": 0, "ended": {}}',
        b'{"bytes": 0, "mode": "755"}',
        b"[" * 100_000,
        b"x" * 2**20,
        b"\xff",
    ],
)
def test_a_line_that_is_no_header_is_one_line(line: bytes) -> None:
    """Whatever another machine says; the thread that receives it ends with it."""
    with pytest.raises(HostError, match="is not a header"):
        Stream(io.BytesIO(line + b"\n"), io.BytesIO()).receive()

    received = Stream(io.BytesIO(line + b"\n"), io.BytesIO()).receive_all()
    assert isinstance(received.get(timeout=60), HostError)


def test_bytes_that_never_come_take_no_memory() -> None:
    """Gigabytes are announced and ten bytes come: the connection has ended in the middle of a file."""
    announced = json.dumps({"bytes": MAX_PAYLOAD_BYTES, "file": "a"}).encode() + b"\n0123456789"

    assert Stream(io.BytesIO(announced), io.BytesIO()).receive() is None


def test_files_come_as_they_were_sent(tmp_path: Path) -> None:
    """Empty, of one byte, and of more than is kept in memory; with a name that is not UTF-8."""
    names = [b"empty", b"one", b"large", b"caf\xe9"]
    contents = [b"", b"1", os.urandom(3 * 2**20 + 1), b"x"]
    paths = [tmp_path / os.fsdecode(name) for name in names]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    through = io.BytesIO()

    Stream(io.BytesIO(), through).send_files(tmp_path, paths, below="run")
    through.seek(0)
    stream = Stream(through, io.BytesIO())
    for _ in paths:
        got = stream.receive()
        assert got is not None
        write_file(tmp_path / "there", got[0], got[1], links=False)

    assert [(tmp_path / "there" / path.name).read_bytes() for path in paths] == contents


def test_a_file_that_shrinks_while_it_is_sent_does_not_shift_the_next_one() -> None:
    """As many bytes are sent as were announced: zeros in place of those that went."""

    class Shrinking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            self.truncate(4)
            return super().read(size)

    through = io.BytesIO()
    stream = Stream(io.BytesIO(), through)
    stream.send({"file": "a"}, Shrinking(b"0123456789"))
    stream.send({"line": "next"})
    through.seek(0)
    stream = Stream(through, io.BytesIO())
    first, second = stream.receive(), stream.receive()

    assert first is not None
    assert first[1].read() == b"0123\0\0\0\0\0\0"
    assert second is not None
    assert second[0] == {"bytes": 0, "line": "next"}
