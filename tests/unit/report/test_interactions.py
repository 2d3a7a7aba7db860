"""Do changes add up?"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import TRIALS, VARIANTS, write_experiment

from placebench import results
from placebench.experiment.records import Block
from placebench.experiment.trials import Trial
from placebench.report import document_of, text_of
from placebench.report.optimizations import in_words, interactions_of
from placebench.stats.multiple_testing import interaction_effects

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
    folder: Path, variants: Mapping[str, float], trials: tuple[Trial, ...] = TRIALS, *, replicates: int = 12
) -> results.Run:
    """The run that `write_experiment` makes."""
    return results.load(write_experiment(folder / "run", variants, trials, replicates=replicates))


def without_cpu(block: Block) -> Block:
    """The block of a program whose CPU cannot be measured."""
    return replace(block, cpu_s=None)


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
    variants = {"tuned": 0.0, "tuned+a": -0.2, "tuned+b": -0.2, "tuned+a+b": -0.3}
    (found,) = interactions_of(made(tmp_path, variants, OWN))

    assert found.name == "a and b"
    assert found.estimate == pytest.approx(0.1, abs=0.02)
    assert str(found).startswith("A and b do less together than each by itself adds up to: 1")


def test_too_few_replicates_tell_of_no_interaction(tmp_path: Path) -> None:
    """Three replicates, six needed: neither that there is one nor that there is none."""
    run = made(tmp_path, {**ADDING_UP, "tuned": -0.6}, replicates=3)

    assert interactions_of(run) == []
    assert in_words(run, []) == [
        "Whether there is an interaction cannot be told of slots, sets and all changes: 3 replicates, 6 needed."
    ]


def test_a_change_without_cpu_hides_no_other(tmp_path: Path) -> None:
    """The CPU of tuned-sets was not measured: slots and the whole are told all the same, sets are not."""
    whole = made(tmp_path, {**ADDING_UP, "tuned-slots": 0.0, "tuned-sets": -0.6, "tuned": -0.6})
    run = replace(
        whole, blocks=[without_cpu(block) if block.variant == "tuned-sets" else block for block in whole.blocks]
    )

    assert [each.name for each in interactions_of(run)] == ["slots", "all changes"]
    assert in_words(run, interactions_of(run))[2:] == [
        "Whether there is an interaction cannot be told of sets: server CPU was not measured."
    ]


def test_differing_answers_have_no_interactions(tmp_path: Path) -> None:
    """Slots would gain 45 % among the others, of a variant that is broken."""
    variants = {**ADDING_UP, "tuned-slots": 0.0, "tuned": -0.6}
    run = results.load(write_experiment(tmp_path / "run", variants, equal=False))

    assert interactions_of(run) == []
    assert in_words(run, []) == []
    assert document_of(run)["interactions"] == []
    assert "CPU (95 %" not in text_of(run)


def test_a_run_that_tried_nothing_twice_has_none_to_speak_of(tmp_path: Path) -> None:
    """A ladder says nothing of interactions."""
    run = made(tmp_path, VARIANTS, (replace(TRIALS[0], kind="step"),))

    assert in_words(run, interactions_of(run)) == []


def test_the_remainder_is_taken_replicate_by_replicate(tmp_path: Path) -> None:
    """The whole, −0.7, less slots alone, −0.2, and sets alone, 0."""
    run = made(tmp_path, VARIANTS)
    left = interaction_effects(run.blocks, ("naive", "tuned"), [("naive", "naive+slots"), ("naive", "naive+sets")])

    assert len(left) == 12
    assert left == pytest.approx([-0.5] * 12, abs=0.05)


def test_the_remainder_lines_up_replicates_by_their_number(tmp_path: Path) -> None:
    """The whole lost replicate 0, slots lost replicate 11: ten are left, each less its own part."""
    run = made(tmp_path, VARIANTS)
    blocks = [
        without_cpu(block) if (block.replicate, block.variant) in ((0, "tuned"), (11, "naive+slots")) else block
        for block in run.blocks
    ]
    pairs = ("naive", "tuned"), [("naive", "naive+slots")]

    assert interaction_effects(blocks, *pairs) == interaction_effects(run.blocks, *pairs)[1:-1]
