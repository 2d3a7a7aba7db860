"""Do changes add up?"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import ARMS, TRIALS, write_experiment

from placebench import results
from placebench.compare.interaction import remainder
from placebench.experiment.trials import Trial
from placebench.report.interactions import in_words, interactions_of

ADDING_UP = {
    "naive": 0.0,
    "naive+slots": -0.2,
    "naive+sets": 0.0,
    "tuned-slots": 0.0,
    "tuned-sets": -0.2,
    "tuned": -0.2,
}
OWN = (
    Trial("a", "own", "tuned", "tuned+a"),
    Trial("b", "own", "tuned", "tuned+b"),
    Trial("both", "own", "tuned", "tuned+a+b"),
)


def made(
    folder: Path, arms: Mapping[str, float], trials: tuple[Trial, ...] = TRIALS, *, replicates: int = 12
) -> results.Run:
    """The run that `write_experiment` makes."""
    return results.load(write_experiment(folder / "run", arms, trials, replicates=replicates))


def test_changes_that_add_up_do_not_interact(tmp_path: Path) -> None:
    """slots do the same in both places, and all together is what they do alone; the ledger says so."""
    run = made(tmp_path, ADDING_UP)

    assert interactions_of(run) == []
    assert in_words(run, []) == [
        "No interaction was seen: changes do together what they do apart, as far as this run can tell."
    ]


def test_an_interaction_is_named(tmp_path: Path) -> None:
    """slots gain 18 % alone and 45 % among the others: more together, by a log ratio of −0.4; so does the whole."""
    run = made(tmp_path, {**ADDING_UP, "tuned-slots": 0.0, "tuned-sets": -0.6, "tuned": -0.6})
    slots, whole = interactions_of(run)

    assert (slots.name, whole.name) == ("slots", "all changes")
    assert slots.estimate == pytest.approx(-0.4, abs=0.02)
    assert slots.high < 0
    assert str(slots).startswith("Slots does more among the others than alone: 33 % less server CPU (95 % interval 3")


def test_two_changes_at_once_are_held_to_each(tmp_path: Path) -> None:
    """a and b save 0.2 each, and 0.3 together: the log ratio of both is 0.1 above their sum."""
    arms = {"tuned": 0.0, "tuned+a": -0.2, "tuned+b": -0.2, "tuned+a+b": -0.3}
    (found,) = interactions_of(made(tmp_path, arms, OWN))

    assert found.name == "a and b"
    assert found.estimate == pytest.approx(0.1, abs=0.02)
    assert str(found).startswith("A and b do less together than each by itself adds up to: 1")


def test_too_few_replicates_name_no_interaction(tmp_path: Path) -> None:
    """Three replicates, six needed."""
    assert interactions_of(made(tmp_path, {**ADDING_UP, "tuned": -0.6}, replicates=3)) == []


def test_a_run_that_tried_nothing_twice_has_none_to_speak_of(tmp_path: Path) -> None:
    """A ladder says nothing of interactions."""
    run = made(tmp_path, ARMS, (replace(TRIALS[0], kind="rung"),))

    assert in_words(run, interactions_of(run)) == []


def test_the_remainder_is_taken_replicate_by_replicate(tmp_path: Path) -> None:
    """The whole, −0.7, less slots alone, −0.2, and sets alone, 0."""
    run = made(tmp_path, ARMS)
    left = remainder(run.blocks, ("naive", "tuned"), [("naive", "naive+slots"), ("naive", "naive+sets")])

    assert len(left) == 12
    assert left == pytest.approx([-0.5] * 12, abs=0.05)
