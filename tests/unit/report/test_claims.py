"""Was the old advice right?"""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import VARIANTS, write_experiment

from placebench import results
from placebench.experiment.records import CountedPass
from placebench.experiment.trials import Trial
from placebench.report.optimizations import claims_of, ledger_of

RUNGS = {"naive": 0.0, "naive+slots": -0.05, "naive+slots+copies": -0.05, "tuned": -0.05}
TRIALS = (
    Trial("slots", "step", "naive", "naive+slots"),
    Trial("copies", "step", "naive+slots", "naive+slots+copies", shows_on="/elsewhere"),
    Trial("sets", "step", "naive+slots+copies", "tuned"),
)


def said(folder: Path, *, replicates: int = 12, trials: tuple[Trial, ...] = TRIALS) -> dict[str, tuple[str, str]]:
    """Answer and evidence by claim, of a ladder that begins with a fifth of the time in SQL, a third in pauses."""
    write_experiment(folder, RUNGS, trials, replicates=replicates)
    counted = CountedPass("naive", 3, 51, 300, 3000, 3.0, 0.6, 1.0, 30)
    counted.save(folder / "counted-naive.json")
    run = results.load(folder)
    return {each.said: (each.answer, each.evidence) for each in claims_of(run, ledger_of(run))}


def test_shares_are_those_of_the_first_variant(tmp_path: Path) -> None:
    """0.6 of 3 s in SQL is not most of the time; 1 of 3 s is a third."""
    claims = said(tmp_path / "run")

    assert claims["most of the time is the database"] == ("no", "20 % of a request of naive is spent in SQL")
    assert claims["a third of the time is the garbage collector's"][0] == "yes"


def test_a_change_is_answered_by_its_interval(tmp_path: Path) -> None:
    """slots save 5 %: yes. Copies save nothing: no, though another request is theirs. Sets neither."""
    claims = said(tmp_path / "run")

    assert claims["`__slots__` really does speed up"][0] == "yes"
    assert claims["sets instead of lists speed up"][0] == "no"
    assert claims["copying objects is what makes it slow"][0] == "no"
    assert claims["copying objects is what makes it slow"][1].endswith("not the one on which it should show")


def test_three_replicates_tell_nothing(tmp_path: Path) -> None:
    """Neither yes nor no."""
    assert said(tmp_path / "run", replicates=3)["sets instead of lists speed up"][0] == "inconclusive"


@pytest.mark.parametrize(("missed", "answer"), [(-0.5, "yes"), (-0.7, "it depends")])
def test_alone_and_among_the_others_have_to_agree(tmp_path: Path, missed: float, answer: str) -> None:
    """slots save 18 % alone; where they save nothing among the others, it depends."""
    run = results.load(write_experiment(tmp_path / "run", {**VARIANTS, "tuned-slots": missed}))
    claims = {each.said: each.answer for each in claims_of(run, ledger_of(run))}

    assert claims["`__slots__` really does speed up"] == answer


def test_without_a_ledger_nothing_is_claimed(tmp_path: Path) -> None:
    """A comparison of two variants tries no change by name."""
    run = results.load(write_experiment(tmp_path / "run", RUNGS, ()))

    assert list(claims_of(replace(run, blocks=[]), [])) == []
