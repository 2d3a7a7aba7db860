"""A file of telemetry holds whole lines, and a disk that fills ends the telemetry and nothing else."""

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placebench.telemetry.series_file import SeriesFile, clean


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may grow beyond *size* bytes: the kernel then takes what fits, and refuses the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lines_are_written_in_their_order_below_the_head(tmp_path: Path) -> None:
    """Nothing is written before the flush; the head comes first."""
    file = SeriesFile(tmp_path / "new" / "a.csv", {"pid": 7})
    file.add("r,1.0,x,1\n")
    file.add("r,2.0,x,2\n")
    before = file.path.exists()
    file.close()

    assert before is False
    assert file.path.read_text() == 'h,{"format_version": 1, "pid": 7}\nr,1.0,x,1\nr,2.0,x,2\n'


def test_a_disk_that_fills_leaves_whole_lines_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What does not fit as a whole is not there at all; later rows are forgotten, and nothing is raised."""
    file = SeriesFile(tmp_path / "a.csv", {"pid": 7})
    file.add("r,1.0,kept,1\n")
    file.flush()
    whole = file.path.read_text()
    with caplog.at_level(logging.WARNING), room_for(len(whole) + 5):
        file.add("r,2.0,lost,2\n")
        file.flush()
        file.add("r,3.0,lost,3\n")
        file.flush()
    file.close()

    assert file.failed
    assert file.path.read_text() == whole
    assert len(caplog.messages) == 1
    assert "is off, the service goes on" in caplog.messages[0]


def test_a_full_device_is_survived() -> None:
    """/dev/full refuses every byte, and cannot be cut either."""
    file = SeriesFile(Path("/dev/full"), {})
    file.add("r,1.0,x,1\n")
    file.close()

    assert file.failed


def test_a_field_cannot_break_its_line() -> None:
    """Commas, quotes and line ends of a label become harmless, and a long one is cut."""
    assert clean('a,b"c\nd') == "a;b'c d"
    assert len(clean("x" * 1000)) == 200
