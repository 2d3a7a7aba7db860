"""A run as pandas frames."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run

from placebench import results
from placebench.compare.keep.records import WirePass
from placebench.errors import MissingExtraError


@pytest.fixture
def run(tmp_path: Path) -> results.Run:
    """naive and tuned, six replicates of two rounds; one counted pass of two requests without statements."""
    folder = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), requests=10))
    WirePass("tuned", None, [5.0, 6.0], [1.0, 1.0], [10.0, 10.0], [20.0, 20.0], [30.0, 30.0]).save(
        folder / "wire-tuned.json"
    )
    return results.load(folder)


def test_a_row_a_block(run: results.Run) -> None:
    """48 blocks, CPU and wall time of one request."""
    pytest.importorskip("pandas")
    frame = run.block_frame()

    assert len(frame) == len(run.blocks) == 48
    assert frame.cpu_s[0] == pytest.approx(run.blocks[0].cpu_s / run.blocks[0].requests)
    assert frame.groupby("variant").cpu_s.median()["tuned"] < frame.groupby("variant").cpu_s.median()["naive"]


def test_each_block_of_a_replicate_that_does_not_count_says_so(run: results.Run) -> None:
    """The reason stands on the block where it was found; a mean must leave all of them out."""
    pytest.importorskip("pandas")
    blocks = [replace(run.blocks[0], invalid="the clock stepped"), *run.blocks[1:]]
    frame = replace(run, blocks=blocks).block_frame()

    assert len(frame[frame.invalid == "the clock stepped"]) == len(frame[frame.replicate == 0]) == 8
    assert frame[frame.replicate > 0].invalid.isnull().all()


def test_a_row_a_request(run: results.Run) -> None:
    """Closed and open load of both variants, ten requests each, every sample as it was."""
    pytest.importorskip("pandas")
    frame = run.request_frame()
    naive = frame[(frame.variant == "naive") & (frame.load == "closed")]

    assert len(frame) == 40
    assert list(naive.latency_s) == run.closed["naive"].result.latency_s


def test_a_row_a_counted_request(run: results.Run) -> None:
    """What was not counted is missing, not zero."""
    pytest.importorskip("pandas")
    frame = run.wire_frame()

    assert list(frame.rows) == [5.0, 6.0]
    assert frame.statements.isna().all()


def test_without_pandas_the_extra_is_named(run: results.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else of a run is read without it."""
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'placebench\[frames\]'"):
        run.block_frame()
