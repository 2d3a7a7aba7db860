"""What the page of a comparison sees from inside: frames, statements, the collector, and where the time went."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import FakeRun, write_inside, write_run

from placebench import results
from placebench.compare.keep.phase_timer import PhaseTimer, harness_share
from placebench.compare.keep.records import (
    ChangedPlan,
    FrameTime,
    ProfiledReplicate,
    StatementCount,
    WirePass,
    append_lines,
)
from placebench.profiler.analysis.difference import FrameChange, frame_changes
from placebench.report import build_report, comparisons_of, write_report
from placebench.report.effects import frame_labels, shorten_statement
from placebench.report.variant_pairs import counted_changes
from placebench.stats import PartChange
from placebench.stats.verdict import SLOWER


def inside(tmp_path: Path) -> results.Run:
    """A run of two variants with everything inside."""
    return results.load(write_inside(write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned")))))


def test_frames_that_got_cheaper_and_dearer(tmp_path: Path) -> None:
    """copy_row is gone, the statement takes 15 ms less, app itself 5 ms more; files as Python sees them."""
    run = inside(tmp_path)
    before, after = run.session("naive"), run.session("tuned")
    assert before is not None
    assert after is not None

    assert frame_changes(before, after) == (
        FrameChange("copy_row", "shop.py", 0.03, 0.0),
        FrameChange("SELECT 1", "sql", 0.02, 0.005),
        FrameChange("app", "shop.py", 0.01, 0.015),
    )


@pytest.mark.parametrize(
    ("freed_s", "named"), [(0.0, []), (0.002, ["Where it changed, under the profiler: select −", "copy_row +"])]
)
def test_the_frames_of_profiled_replicates_have_intervals(tmp_path: Path, freed_s: float, named: list[str]) -> None:
    """Of eight replicates: copy_row became slower by 1 ms each time, app by chance; page and JSON say so.

    The variant is faster. The summary names what became slower only if what became faster outweighs it.
    """
    folder = write_inside(write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), replicates=6)))
    chance = random.Random(1)
    lines = [
        ProfiledReplicate(
            number,
            variant,
            requests=5,
            frames=[
                FrameTime("app", "shop.py", 0.1 + chance.gauss(0, 0.001)),
                FrameTime("copy_row", "shop.py", 0.002 + more_s + chance.gauss(0, 0.0001)),
                FrameTime("select", "shop.py", 0.01 - 1000 * more_s * freed_s + chance.gauss(0, 0.0001)),
            ],
        )
        for number in range(8)
        for variant, more_s in (("naive", 0.0), ("tuned", 0.001))
    ]
    append_lines(folder / "profiled.jsonl", lines)

    report = build_report(folder)
    changed = report.document["changed_frames"][-1]
    page = write_report(report).read_text()

    assert (changed["baseline"], changed["variant"], changed["frame"]) == ("naive", "tuned", "copy_row")
    assert changed["low_s"] < 0.001 < changed["high_s"]
    assert (changed["verdict"], changed["p_adjusted"]) == ("slower", 1 / 128)
    where = [str(each) for each in report.summary if str(each).startswith("Where it changed")]
    assert bool(named) == bool(where)
    assert all(name in where[0] for name in named)
    assert page.index("<code>copy_row</code>") < page.index("<code>app</code>")
    assert " inconclusive</td>" in page


def test_frames_of_the_same_name_are_told_apart_by_their_files() -> None:
    """A name that only one frame has stands alone, and a statement has no file."""
    frames = (
        ("get", "/app/shop/views.py"),
        ("get", "/app/api/views.py"),
        ("put", "/app/shop/views.py"),
        ("select 1", "sql"),
    )
    parts = [PartChange(frame, 1.0, 2.0, 1.0, 0.5, 1.5, 0.01, SLOWER) for frame in frames]

    assert frame_labels(parts) == ["get (shop/views.py)", "get (api/views.py)", "put", "select 1"]


def test_statements_are_known_by_their_shape(tmp_path: Path) -> None:
    """A shorter IN list is the same statement: 3 calls and 60 rows became 1 and 20; the other one is gone."""
    run = inside(tmp_path)
    changed, gone = counted_changes(run.wire["naive"], run.wire["tuned"])

    both = [(each.before, each.after) for each in (changed.calls, changed.rows, changed.seconds)]
    assert (changed.state, both) == ("changed", [(3.0, 1.0), (60.0, 20.0), (0.006, 0.002)])
    assert (gone.state, gone.calls.before, gone.calls.after, gone.sql) == ("gone", 1, 0.0, "SELECT b FROM traits")


def test_the_summary_names_statements_and_plans_that_changed(tmp_path: Path) -> None:
    """A reviewer of a pull request has no other file: statement, line and plan nodes are sentences."""
    folder = write_inside(write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), replicates=6)))
    plans = [
        ChangedPlan("naive", "tuned", "SELECT id FROM orders WHERE customer = $1", "shop.py:7 orders", before, after)
        for before, after in ((["Index Scan using by on orders"], ["Seq Scan on orders"]), ([], ["Seq Scan on notes"]))
    ]
    ChangedPlan.save_all(folder, plans)

    report = build_report(folder)

    said = [str(each) for each in report.summary]
    statement = "Where it changed: the plan of SELECT … orders (shop.py:7 orders): "
    assert f"{statement}Index Scan using by on orders → Seq Scan on orders." in said
    assert f"{statement}Seq Scan on notes, in a new statement." in said
    assert [each.before for each in plans] == [each["before"] for each in report.document["changed_plans"]]
    assert any(each.startswith("Statements per request that changed: SELECT … ") for each in said)
    assert "Rows per request: 69 → 20." in said
    assert "Statements with another plan" in write_report(report).read_text()


def test_a_statement_that_is_new_and_one_that_is_the_same() -> None:
    """Those that stayed the same come last, however dear."""
    lists: dict[str, list[float]] = {
        name: [1.0] for name in ("statements", "rows", "round_trips", "bytes_sent", "bytes_received", "body_bytes")
    }
    same, new = StatementCount("SELECT a FROM b", 1, 5, 0.9), StatementCount("SELECT c FROM d", 1, 5, 0.1)
    changes = counted_changes(
        WirePass("x", **lists, by_statement=[same]), WirePass("y", **lists, by_statement=[same, new])
    )

    assert [(each.state, each.sql) for each in changes] == [("new", "SELECT c FROM d"), ("same", "SELECT a FROM b")]


def test_the_collector_has_a_ratio_and_no_verdict(tmp_path: Path) -> None:
    """130 ms against 13 ms: a tenth; requests of one process give no interval."""
    collector = next(each for each in comparisons_of(inside(tmp_path)) if each.metric == "gc_s")

    assert (collector.baseline_value, collector.variant_value, collector.ratio) == pytest.approx((0.13, 0.013, 0.1))
    assert (collector.low, collector.high, collector.verdict) == (None, None, "inconclusive")


def test_without_a_flame_the_page_says_why(tmp_path: Path) -> None:
    """A variant of an environment without placebench."""
    folder = inside(tmp_path).folder
    for path in folder.glob("*.pyisession"):
        path.unlink()
    for path in folder.glob("profiled-*.json"):
        path.write_text(path.read_text().replace('"reason": ""', '"reason": "placebench is not installed beside x"'))

    page = write_report(folder).read_text()
    assert "naive: no flame graph, placebench is not installed beside x." in page
    assert "Frames: not measured for both variants." in page


def test_a_statement_in_short() -> None:
    """Its verb and its tables."""
    sql = "SELECT a, b FROM things JOIN traits ON 1 = 1 WHERE id IN (SELECT id FROM things)"

    assert shorten_statement(sql) == "SELECT … things, traits"
    assert shorten_statement("SELECT 1") == "SELECT 1"
    assert shorten_statement("SELECT a FROM things JOIN trai…") == "SELECT … things"


def test_where_the_time_went() -> None:
    """Of 10 s of replicates 8 s are requests and 1 s a start: the harness took a tenth."""
    ticks = iter((0.0, 10.0, 20.0, 21.0))
    spent = PhaseTimer(clock=lambda: next(ticks))
    with spent.measure("replicates"):
        spent.add("requests", 8.0)
    with spent.measure("start"):
        pass

    assert spent.seconds == {"requests": 8.0, "replicates": 10.0, "start": 1.0}
    assert harness_share(spent.seconds) == 1 - 9 / 10
    assert PhaseTimer({"start": 1.0}).seconds == {"start": 1.0}


def test_the_report_says_where_the_time_went(tmp_path: Path) -> None:
    """Phases in their order, each with its seconds."""
    folder = write_run(tmp_path, FakeRun())
    head = results.load(folder).head
    replace(head, spent_s={"comparison": 90.0, "data": 4.0}).save(folder / "run.json")

    text = write_report(folder).read_text()

    assert "Where the time of the run went: 4.00 s data, 90.0 s comparison." in text


def test_no_replicates_have_no_share() -> None:
    """Before the first replicate nothing is known."""
    assert harness_share({}) is None
