"""What becomes of what was tried."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from fake_experiment import ARMS, write_experiment

from placebench import results
from placebench.compare.interaction import remainder
from placebench.report.ledger import interactions_of, ledger_document, ledger_of, write_ledger


def experiment(
    folder: Path, arms: Mapping[str, float] = ARMS, *, replicates: int = 12, equal: bool = True
) -> results.Run:
    """The run that `write_experiment` makes."""
    return results.load(write_experiment(folder, arms, replicates=replicates, equal=equal))


@pytest.fixture
def run(tmp_path: Path) -> results.Run:
    """slots gain 18 %, alone and among the others alike; sets gain nothing, but ask less."""
    return experiment(tmp_path / "run", ARMS)


def test_what_gains_is_kept_and_what_does_not_is_dropped(run: results.Run) -> None:
    """slots by its CPU, sets alone by its statements, sets among the others not at all."""
    entries = {(each.name, each.kind): each for each in ledger_of(run)}

    assert (entries["slots", "alone"].verdict, entries["slots", "alone"].decision) == ("faster", "kept")
    assert entries["slots", "alone"].ratio == pytest.approx(math.exp(-0.2), rel=0.01)
    assert entries["sets", "alone"].decision == "kept"
    assert entries["sets", "alone"].why == "fewer statements and rows, at no more CPU that could be seen"
    assert (entries["sets", "missed"].verdict, entries["sets", "missed"].decision) == ("equivalent", "dropped")
    assert entries["slots", "missed"].request == run.head.request


def test_changes_that_add_up_do_not_interact(run: results.Run) -> None:
    """slots do the same in both places."""
    assert interactions_of(run) == []


def test_an_interaction_is_named(tmp_path: Path) -> None:
    """slots gain 18 % alone and 45 % among the others: more together, by a log ratio of −0.4."""
    (found,) = interactions_of(experiment(tmp_path / "run", {**ARMS, "tuned-slots": -0.1}))

    assert found.name == "slots"
    assert found.estimate == pytest.approx(-0.4, abs=0.02)
    assert found.high < 0


def test_the_remainder_is_taken_replicate_by_replicate(run: results.Run) -> None:
    """The whole, −0.7, less slots alone, −0.2, and sets alone, 0."""
    left = remainder(run.blocks, ("naive", "tuned"), [("naive", "naive+slots"), ("naive", "naive+sets")])

    assert len(left) == 12
    assert left == pytest.approx([-0.5] * 12, abs=0.05)


def test_too_few_replicates_stay_open(tmp_path: Path) -> None:
    """Three replicates decide nothing by CPU, and name no interaction."""
    run = experiment(tmp_path / "run", ARMS, replicates=3)
    entries = {(each.name, each.kind): each for each in ledger_of(run)}

    assert entries["slots", "alone"].decision == "open"
    assert entries["slots", "alone"].why.startswith("3 replicates, 6 needed; ")
    assert interactions_of(run) == []


def test_claims_are_answered_by_name(run: results.Run) -> None:
    """What was always said of an optimization stands beside what was measured."""
    claims = {each["claim"]: each["answer"] for each in ledger_document(run)["claims"]}

    assert claims["`__slots__` really does speed up"].startswith("faster: ")


def test_the_ledger_is_a_table(run: results.Run) -> None:
    """A row a trial, for people."""
    text = write_ledger(run).read_text()

    assert "| slots (alone) | naive → naive+slots | 18" in text
    assert "**kept**" in text
    assert "| statements, 0 % more: equivalent |" in text
    assert "slots should show on another request than this run's: `/elsewhere`." in text


def test_differing_answers_have_no_ledger(tmp_path: Path) -> None:
    """No effect of a variant that is broken."""
    assert ledger_of(experiment(tmp_path / "run", ARMS, equal=False)) == []
