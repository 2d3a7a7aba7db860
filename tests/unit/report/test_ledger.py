"""What becomes of what was tried."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import VARIANTS, write_experiment

from placebench import results
from placebench.experiment.records import WirePass
from placebench.report import document_of, text_of
from placebench.report.comparisons import comparisons_of
from placebench.report.optimizations import ledger_of, ledger_text, write_ledger
from placebench.stats.verdict import Verdict


def experiment(
    folder: Path, variants: Mapping[str, float] = VARIANTS, *, replicates: int = 12, equal: bool = True
) -> results.Run:
    """The run that `write_experiment` makes."""
    return results.load(write_experiment(folder, variants, replicates=replicates, equal=equal))


@pytest.fixture
def run(tmp_path: Path) -> results.Run:
    """slots gain 18 %, alone and among the others alike; sets gain nothing, but ask less."""
    return experiment(tmp_path / "run", VARIANTS)


def test_what_gains_is_kept_and_what_does_not_is_dropped(run: results.Run) -> None:
    """slots by its CPU, sets alone by its statements, sets among the others not at all."""
    entries = {(each.name, each.kind): each for each in ledger_of(run)}

    assert (entries["slots", "alone"].verdict, entries["slots", "alone"].decision) == ("faster", "kept")
    assert entries["slots", "alone"].ratio == pytest.approx(math.exp(-0.2), rel=0.01)
    assert entries["sets", "alone"].decision == "kept"
    assert entries["sets", "alone"].why == "fewer statements, rows, round trips, at no more CPU that could be seen"
    assert (entries["sets", "leave_one_out"].verdict, entries["sets", "leave_one_out"].decision) == (
        "equivalent",
        "dropped",
    )
    assert entries["slots", "leave_one_out"].request == run.head.request


def test_too_few_replicates_stay_open(tmp_path: Path) -> None:
    """Three replicates decide nothing by CPU."""
    run = experiment(tmp_path / "run", VARIANTS, replicates=3)
    entries = {(each.name, each.kind): each for each in ledger_of(run)}

    assert entries["slots", "alone"].decision == "open"
    assert entries["slots", "alone"].why.startswith("3 replicates, 6 needed; ")
    assert entries["sets", "alone"].decision == "open", "fewer statements, and nobody knows at what CPU"


def test_a_change_whose_cpu_was_not_measured_stays_open(run: results.Run) -> None:
    """It has no effect and no verdict, and the ledger says why; the others have theirs."""
    blocks = [replace(block, cpu_s=None) if block.variant == "naive+sets" else block for block in run.blocks]
    entries = {(each.name, each.kind): each for each in ledger_of(replace(run, blocks=blocks))}
    sets = entries["sets", "alone"]

    assert (sets.verdict, sets.decision, sets.why) == ("not measured", "open", "server CPU was not measured")
    assert entries["slots", "alone"].decision == "kept"


def test_what_did_not_help_here_may_help_elsewhere(tmp_path: Path) -> None:
    """Where the catalogue names another request, the ledger says how that one is asked."""
    run = experiment(tmp_path / "run", {**VARIANTS, "naive+slots": 0.1})

    assert next(each.why for each in ledger_of(run) if each.kind == "alone") == (
        "more server CPU beyond the margin; but this is not the request for it: `placebench experiment slots` asks "
        "that one"
    )


def test_the_ledger_is_a_table(run: results.Run) -> None:
    """A row a trial, for people."""
    text = write_ledger(run).read_text()

    assert "| slots (alone) | naive → naive+slots | 18" in text
    assert "**kept**" in text
    assert "| statements, the same: equivalent |" in text
    assert text in text_of(run)
    assert document_of(run)["ledger"][0]["name"] == "slots"
    assert "slots should show on another request than this run's: `/elsewhere`." in text
    assert "All changes do more together than each by itself adds up to: 39 % less server CPU (95 % interval" in text
    assert "| `__slots__` really does speed up | **yes** | alone 18" in text


@pytest.mark.parametrize("verdict", ["equivalent", "below the margin"])
def test_fewer_statements_at_more_cpu_are_not_kept(run: results.Run, verdict: Verdict) -> None:
    """Under the margin, and yet its whole interval is more: 0.55 % (0.2 to 0.9 %)."""
    dearer = [
        replace(each, ratio=1.0055, low=1.002, high=1.009, verdict=verdict)
        if (each.variant, each.metric) == ("naive+sets", "cpu_s")
        else each
        for each in comparisons_of(run)
    ]
    entries = {(each.name, each.kind): each for each in ledger_of(run, dearer)}

    assert entries["sets", "alone"].decision == "dropped"
    assert entries["sets", "alone"].why == "fewer statements, rows, round trips, but 0.55 % more server CPU"


def test_a_small_change_is_not_within_the_margin(run: results.Run) -> None:
    """0.9 % less, 0.1 to 1.7 %: only the estimate is under 1 %."""
    small = [
        replace(each, ratio=0.991, low=0.983, high=0.999, verdict="below the margin")
        if (each.baseline, each.metric) == ("tuned-sets", "cpu_s")
        else each
        for each in comparisons_of(run)
    ]

    assert ledger_of(run, small)[-1].why == "a small change: its estimate is under the margin"


def test_rows_where_there_were_none_are_more(tmp_path: Path) -> None:
    """Fewer statements, and 50 rows where naive asks for none: that is no reason to keep what saves no CPU."""
    folder = write_experiment(tmp_path / "run")
    for variant, rows in (("naive", 0.0), ("naive+sets", 50.0)):
        path = folder / f"wire-{variant}.json"
        replace(WirePass.load(path), rows=[rows] * 6).save(path)
    entries = {(each.name, each.kind): each for each in ledger_of(results.load(folder))}

    assert (entries["sets", "alone"].decision, entries["sets", "alone"].why) == (
        "dropped",
        "no change beyond the margin",
    )


def test_differing_answers_have_no_ledger(tmp_path: Path) -> None:
    """No effect of a variant that is broken: the file says why it has none."""
    run = experiment(tmp_path / "run", VARIANTS, equal=False)

    assert ledger_of(run) == []
    assert write_ledger(run).read_text().splitlines() == [
        "# Ledger of run",
        "",
        f"Request: `{run.head.request}`",
        "",
        "The variants do not give the same answer, so no speed is printed.",
    ]


def test_nobody_asked_is_no_ledger(tmp_path: Path) -> None:
    """A run that ended before its first answer has no effects, and no row without one."""
    run = experiment(tmp_path / "run", VARIANTS)
    asked_nobody = replace(run, head=replace(run.head, same_responses={}))

    assert ledger_text(asked_nobody).splitlines()[4:] == [
        "No variant was asked before the run ended, so no speed is printed."
    ]
