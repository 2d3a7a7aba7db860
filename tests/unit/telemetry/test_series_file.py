"""A telemetry file holds whole lines, and a full disk ends the telemetry and nothing else; paths are patterns."""

import logging
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placebench.telemetry.series_file import PathPatterns, SeriesFile, bounded_verb, clean


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


def test_what_looks_like_an_id_is_one() -> None:
    """Numbers, UUIDs and long hashes are ids; words and versions are not."""
    patterns = PathPatterns()

    assert patterns.of("/orders/17/lines/3") == "/orders/<id>/lines/<id>"
    assert patterns.of("/resource_providers/7d2590ae-fb85-4080-9306-058b4c915e3f/usages") == (
        "/resource_providers/<id>/usages"
    )
    assert patterns.of("/blobs/3f786850e387550fdab836ed7e6dc881de23001b") == "/blobs/<id>"
    assert patterns.of("/traits/HW_CPU_X86_AVX2") == "/traits/HW_CPU_X86_AVX2"
    assert patterns.of("") == "/"


def test_after_two_hundred_patterns_all_others_are_one() -> None:
    """A client that invents paths does not fill the memory, nor the table."""
    patterns = PathPatterns()
    seen = {patterns.of(f"/word{chr(97 + n % 26)}{'x' * (n // 26)}") for n in range(1000)}

    assert len(seen) == 201
    assert "(other)" in seen


def test_a_verb_that_nobody_knows_is_other() -> None:
    """A request's method is whatever the client sends."""
    assert [bounded_verb(verb) for verb in ("GET", "BREW", "GET,1")] == ["GET", "(other)", "(other)"]


def test_a_pause_between_two_clocks_moves_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process loses its core there."""
    now, pauses_s = time.time, iter([0.1])

    def paused() -> float:
        at = now()
        time.sleep(next(pauses_s, 0.0))
        return at

    monkeypatch.setattr(time, "time", paused)
    made = SeriesFile(tmp_path / "a.csv", {})

    assert made.wall_zero_s > now() - time.perf_counter() - 0.05
