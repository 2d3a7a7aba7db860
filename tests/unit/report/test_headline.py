"""The first sentence of a run with several comparisons."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import ARMS, write_experiment

from placebench import results
from placebench.compare import Comparison
from placebench.experiment.trials import Trial
from placebench.report import write_report
from placebench.report.figures import Figures, figures_of
from placebench.report.headline import below_it, headline, several_sentence

FASTER = Comparison(
    baseline="naive",
    variant="slots",
    metric="cpu_s",
    ratio=0.8,
    low=0.79,
    high=0.81,
    confidence=0.95,
    replicates=12,
    invalidated=0,
    verdict="faster",
    detectable=0.01,
    margin=0.01,
    reason="",
    log_ratios=(-0.22,) * 12,
)
SLOWER = replace(FASTER, variant="sets", ratio=1.1, low=1.09, high=1.11, verdict="slower")
ALIKE = replace(FASTER, variant="rows", ratio=1.0, low=0.999, high=1.001, verdict="equivalent")
OPEN = replace(ALIKE, variant="none", low=None, high=None, verdict="cannot tell", reason="cannot tell: 3 replicates, 6")
NAMES = {("naive", each.variant): each.variant for each in (FASTER, SLOWER, ALIKE, OPEN)}
SLOTS = "the largest effect is that of slots: 20 % less (95 % interval 19 to 21 %; 12 replicates): faster."


@pytest.mark.parametrize(
    ("primaries", "many", "sentence"),
    [
        (
            [FASTER, SLOWER, ALIKE, OPEN],
            "4 changes",
            (
                "Of 4 changes 1 takes less server CPU, 1 takes more, 1 makes no difference that matters "
                f"and 1 cannot be told; {SLOTS}"
            ),
        ),
        ([FASTER, FASTER], "2 programs", f"All 2 programs take less server CPU; {SLOTS}"),
        ([ALIKE, ALIKE], "2 changes", "All 2 changes make no difference that matters; no effect reaches its margin."),
        ([OPEN, OPEN, OPEN], "3 changes", "All 3 changes cannot be told; 3 replicates, 6."),
    ],
)
def test_several_comparisons_in_one_sentence(primaries: list[Comparison], many: str, sentence: str) -> None:
    """How many of them do what, and the largest effect with its interval and verdict."""
    assert several_sentence(primaries, NAMES, many=many) == sentence


def figures(folder: Path, arms: dict[str, float], *trials: Trial) -> Figures:
    return figures_of(results.load(write_experiment(folder, arms, trials)))


def test_a_ladder_says_what_all_rungs_bring_together(tmp_path: Path) -> None:
    """Two rungs of −0.2 and −0.3 are 1.65 times less from end to end."""
    arms = {"naive": 0.0, "naive+slots": -0.2, "tuned": -0.5}
    trials = Trial("slots", "rung", "naive", "naive+slots"), Trial("sets", "rung", "naive+slots", "tuned")
    made = figures(tmp_path / "run", arms, *trials)

    assert headline(made).startswith("All 2 changes take less server CPU; the largest effect is that of sets: 25.9")
    assert below_it(made)[0].startswith("tuned answers this request with 1.6")
    assert below_it(made)[1] == "Worth keeping here, the largest effect first: sets and slots."
    assert below_it(made)[-1].startswith("For server CPU, the smallest effect that it could have seen is about 0.")


def test_an_ablation_tries_each_change_twice(tmp_path: Path) -> None:
    """What is tried alone and among the others is one change in two trials, and is worth keeping once."""
    arms = {"naive": 0.0, "naive+slots": -0.2, "tuned-slots": -0.5, "tuned": -0.7}
    trials = Trial("slots", "alone", "naive", "naive+slots"), Trial("slots", "missed", "tuned-slots", "tuned")
    made = figures(tmp_path / "run", arms, *trials)

    assert headline(made).startswith(
        "All 2 trials of 1 change take less server CPU; the largest effect is that of slots"
    )
    assert "Worth keeping here, the largest effect first: slots." in below_it(made)


def test_counts_alone_are_told_as_counts(tmp_path: Path) -> None:
    """Without a replicate nothing was timed, and naive+sets still asks 11 statements where naive asks 17."""
    folder = write_experiment(
        tmp_path / "run", {name: ARMS[name] for name in ("naive", "naive+sets")}, (), replicates=0
    )

    assert headline(figures_of(results.load(folder))) == (
        "For one request naive+sets asks 11 statements where naive asks 17; no time was measured."
    )
    page = write_report(folder).read_text()
    assert "no time was measured.</p>" in page
    assert 'id="comparisons"' in page


def test_few_programs_are_told_one_by_one(tmp_path: Path) -> None:
    """Three arms without trials are two comparisons with the first, each a sentence."""
    made = figures(tmp_path / "run", {name: ARMS[name] for name in ("naive", "naive+slots", "tuned")})

    assert [each.partition(" ")[0] for each in below_it(made)] == ["naive+slots", "tuned", "For"]
    assert made.names == {("naive", "naive+slots"): "naive+slots", ("naive", "tuned"): "tuned"}
