"""Two runs side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run
from fake_survey import write_survey

from placebench import results
from placebench.compare.keep.records import RunHead, StatementCount, WirePass
from placebench.errors import RunFolderError
from placebench.report import difference_report, render_text


def run(folder: Path, statements: float, *, seed: int = 1, equal: bool = True) -> results.Run:
    """naive and tuned, where tuned asks so many statements."""
    write_run(folder, FakeRun(variants=("naive", "tuned"), seed=seed, equal=equal))
    for name, number in (("naive", 29.0), ("tuned", statements)):
        six = [number] * 6
        WirePass(name, six, six, six, six, six, six).save(folder / f"wire-{name}.json")
    return results.load(folder)


def test_counts_are_compared_and_times_are_not_judged(tmp_path: Path) -> None:
    """tuned went from 11 statements to 12, naive stayed; times of two runs get no verdict."""
    table = render_text(difference_report(run(tmp_path / "a", 11.0), run(tmp_path / "b", 12.0))).splitlines()
    rows = {line.split("  ")[0]: line.split() for line in table[3:]}

    assert table[0] == "a before, b after"
    assert rows["tuned: statements"][-4:] == ["11", "12", "1.091", "more"]
    assert rows["naive: statements"][-1] == "same"
    assert rows["tuned: server CPU"][-2:] == ["not", "interleaved"]


def test_another_seed_is_said(tmp_path: Path) -> None:
    """Runs with different seeds are compared, and the report names the seeds as another condition."""
    document = difference_report(run(tmp_path / "a", 11.0), run(tmp_path / "b", 11.0, seed=2)).document

    assert document["other_conditions"] == ["another seed: 1 before, 2 after"]
    assert {each["metric"] for each in document["metrics"]} >= {"statements", "cpu_s", "closed_wall_s"}


def test_statements_that_changed_are_named(tmp_path: Path) -> None:
    """One is sent three times instead of once, one is new; what stayed the same is not named."""
    before, after = run(tmp_path / "a", 3.0), run(tmp_path / "b", 5.0)
    things, traits, same = "SELECT a FROM things", "SELECT b FROM traits", "SELECT c FROM rest"
    counted = ([(things, 1, 9), (same, 1, 1)], [(things, 3, 27), (traits, 1, 4), (same, 1, 1)])
    for made, statements in zip((before, after), counted, strict=True):
        counts = [StatementCount(sql, calls, rows, 0.001) for sql, calls, rows in statements]
        replace(made.wire["tuned"], by_statement=counts).save(made.folder / "wire-tuned.json")
    before, after = results.load(tmp_path / "a"), results.load(tmp_path / "b")
    lines = [line.split() for line in render_text(difference_report(before, after)).splitlines()[-2:]]

    assert lines == [
        ["tuned:", "SELECT", "…", "things", "changed", "1", "3", "9", "27"],
        ["tuned:", "SELECT", "…", "traits", "new", "0", "1", "0", "4"],
    ]
    assert [each["state"] for each in difference_report(before, after).document["statements"]] == ["changed", "new"]


def test_another_commit_is_said(tmp_path: Path) -> None:
    """Of placebench itself, whose variants may have changed with it."""
    before, after = run(tmp_path / "a", 11.0), run(tmp_path / "b", 11.0)
    head = RunHead.load(after.folder / "run.json")
    replace(head, manifest={**head.manifest, "commit": "ffff"}).save(after.folder / "run.json")

    document = difference_report(before, results.load(after.folder)).document
    assert document["other_conditions"] == ["another commit of placebench: 0b918402d2c1 before, ffff after"]


def test_no_speed_of_a_run_whose_responses_differ(tmp_path: Path) -> None:
    """Nothing of it is put beside anything."""
    document = difference_report(run(tmp_path / "a", 11.0), run(tmp_path / "b", 11.0, equal=False)).document

    assert (document["metrics"], document["statements"]) == ([], [])


def test_a_study_is_refused_by_name(tmp_path: Path) -> None:
    """It has rows of its own and no metrics of variants; the line says what shows it."""
    study = results.load(write_survey(tmp_path / "study", "herd", repeats=2))

    with pytest.raises(RunFolderError, match=r"/study is the run of a study: expected .*`placebench report open`"):
        difference_report(run(tmp_path / "a", 11.0), study)
