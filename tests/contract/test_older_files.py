"""Files of an earlier version are read, and those of the present format are written back byte for byte."""

import re
from pathlib import Path

import pytest

from placebench import results
from placebench.compare.keep.records import rewrite_lines
from placebench.profiler import PlanNode, Recording
from placebench.profiler.analysis.suite import SqlCounts, SuiteBaseline
from placebench.profiler.model.statement import Checkout, RecordedRequest

RUNS = Path(__file__).parent / "files" / "runs"
RECORDINGS = Path(__file__).parent / "files" / "recordings"


@pytest.mark.parametrize("folder", sorted(RUNS.iterdir()), ids=lambda folder: folder.name)
def test_a_run_of_version_0_2_is_written_back_as_it_was(folder: Path, tmp_path: Path) -> None:
    """Every byte of its head, its passes and its lines, and later keys: gates, and why nothing was counted."""
    run = results.load(folder)
    run.head.save(tmp_path / "run.json")
    for name, passes in (
        *(("locust-{}-closed.json", run.closed), ("locust-{}-open.json", run.open)),
        *(("counted-{}.json", run.counted), ("wire-{}.json", run.wire), ("profiled-{}.json", run.profiled)),
    ):
        for variant, made in passes.items():
            made.save(tmp_path / name.format(variant))
    for name, lines in (("blocks.jsonl", run.blocks), ("measurements.jsonl", run.measurements)):
        if lines:
            rewrite_lines(tmp_path / name, lines)

    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    expected["run.json"] = expected["run.json"].replace(b'"plan": {}, ', b'"plan": {}, "gates": [], ')
    for name in expected:
        if name.startswith("wire-"):
            expected[name] = expected[name].removesuffix(b"}") + b', "uncounted": ""}'
    assert expected == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["plans", "merged"])
def test_a_recording_of_version_0_2_is_written_back_as_it_was(name: str, tmp_path: Path) -> None:
    """Every byte, and keys that came later: with a plan, checkouts, errors and open transactions."""
    kept = RECORDINGS / f"{name}.recording.json"
    loaded = Recording.load(kept)
    loaded.save(tmp_path / "again.json")

    with_later_key = re.sub(
        rb'("value_count": ?[^,}]+)\}', rb'\1, "entity_count": null, "database_number": null}', kept.read_bytes()
    )
    with_later_key = re.sub(rb'"spilled_kb": ?[^,}]+', rb'\g<0>, "may_stop": false', with_later_key)
    assert with_later_key == (tmp_path / "again.json").read_bytes()
    assert loaded == Recording.load(tmp_path / "again.json")
    assert {type(each) for each in (loaded.timeline[0], loaded.checkouts[0], loaded.unkept_places[0].first.plan)} == {
        RecordedRequest,
        Checkout,
        PlanNode,
    }


def test_a_recording_without_the_later_fields_is_read() -> None:
    """Their values are those of a recording that had none; of what was dropped the number was known."""
    loaded = Recording.load(RECORDINGS / "earlier.recording.json")

    assert (loaded.unkept.statements, loaded.statement_count) == (3, 5)
    assert (loaded.checkouts, loaded.timeline, loaded.open_transactions) == ((), (), ())
    assert loaded.statements[0].database is None


def test_a_baseline_of_version_0_2_is_written_back_as_it_was(tmp_path: Path) -> None:
    """Counts, those left out as 0, and a test that is not compared."""
    kept = RECORDINGS / "baseline.json"
    baseline = SuiteBaseline.load(kept)
    baseline.save(tmp_path / "again.json")

    assert kept.read_bytes() == (tmp_path / "again.json").read_bytes()
    assert [SqlCounts(), SqlCounts({"0123456789abcdef": 3}, 2, 1), None] == list(baseline.tests.values())
