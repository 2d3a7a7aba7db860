"""The first sentence of a run with several comparisons."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import VARIANTS, write_experiment

from placebench import results
from placebench.experiment.trials import Trial
from placebench.report import write_report
from placebench.report.figures import Figures, figures_of
from placebench.report.headline import below_it, headline, several_sentence
from placebench.stats import Comparison

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
OPEN = replace(
    ALIKE, variant="none", low=None, high=None, verdict="inconclusive", reason="inconclusive: 3 replicates, 6"
)
SMALL = replace(FASTER, variant="copies", ratio=0.991, low=0.983, high=0.999, verdict="below the margin")
WIDE = replace(FASTER, variant="freeze", ratio=1.08, low=0.98, high=1.18, verdict="inconclusive")
UNMEASURED = replace(OPEN, variant="pool", ratio=None, log_ratios=(), reason="not measured: cpu_s")
NAMES = {("naive", each.variant): each.variant for each in (FASTER, SLOWER, ALIKE, OPEN, SMALL, WIDE, UNMEASURED)}
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
        ([FASTER, FASTER], "2 variants", f"All 2 variants take less server CPU; {SLOTS}"),
        ([ALIKE, ALIKE], "2 changes", "All 2 changes make no difference that matters; no effect reaches its margin."),
        ([OPEN, OPEN, OPEN], "3 changes", "All 3 changes cannot be told; 3 replicates, 6."),
        ([WIDE, WIDE], "2 changes", "All 2 changes cannot be told."),
        ([ALIKE, WIDE], "2 changes", "Of 2 changes 1 makes no difference that matters and 1 cannot be told."),
        (
            [SMALL, ALIKE, WIDE],
            "3 changes",
            (
                "Of 3 changes 1 makes a small difference, 1 makes no difference that matters and 1 cannot be told; the "
                "largest effect is that of copies: 0.90 % less (95 % interval 0.10 to 1.7 %; 12 replicates): below the "
                "margin."
            ),
        ),
        (
            [FASTER, SLOWER, UNMEASURED],
            "3 variants",
            (f"Of 3 variants 1 takes less server CPU, 1 takes more and of 1 server CPU was not measured; {SLOTS}"),
        ),
        (
            [SLOWER, SLOWER],
            "2 variants",
            (
                "All 2 variants take more server CPU; the largest effect is that of sets: 10 % more (95 % interval 9.0 "
                "to 11 %; 12 replicates): slower."
            ),
        ),
    ],
)
def test_several_comparisons_in_one_sentence(primaries: list[Comparison], many: str, sentence: str) -> None:
    """How many of them do what, and the largest effect with its interval and verdict."""
    assert several_sentence(primaries, NAMES, many=many) == sentence


def test_more_says_of_what_and_than_what() -> None:
    """The first verdict of them names the metric and the baseline, whichever it is."""
    said = several_sentence([SLOWER, ALIKE], NAMES, many="2 variants", held=" than naive")

    assert said.startswith("Of 2 variants 1 takes more server CPU than naive and 1 makes no difference that matters; ")


def test_the_order_of_the_variants_does_not_choose_the_metric(tmp_path: Path) -> None:
    """The CPU of the first variant was not measured: the sentence speaks of that of the other, and says so."""
    variants = {name: VARIANTS[name] for name in ("naive", "naive+slots", "tuned")}
    run = results.load(write_experiment(tmp_path / "run", variants, ()))
    blocks = [replace(block, cpu_s=None) if block.variant == "naive+slots" else block for block in run.blocks]
    made = figures_of(replace(run, blocks=blocks))

    assert headline(made).startswith(
        "Of 2 variants 1 takes less server CPU than naive and of 1 server CPU was not measured; the largest effect is "
        "that of tuned: "
    )
    assert below_it(made)[0] == (
        "Cannot tell whether naive+slots answers this request with less server CPU than naive: server CPU was not "
        "measured."
    )


def test_what_the_ledger_keeps_is_worth_keeping(tmp_path: Path) -> None:
    """Slots for their CPU, sets for their fewer statements: both are named, as in the ledger."""
    variants = {name: VARIANTS[name] for name in ("naive", "naive+slots", "naive+sets")}
    trials = Trial("sets", "own", "naive", "naive+sets"), Trial("slots", "own", "naive", "naive+slots")

    assert "Worth keeping here, the largest effect first: slots and sets." in below_it(
        figures(tmp_path / "run", variants, *trials)
    )


def figures(folder: Path, variants: dict[str, float], *trials: Trial) -> Figures:
    return figures_of(results.load(write_experiment(folder, variants, trials)))


def test_a_ladder_says_what_all_rungs_bring_together(tmp_path: Path) -> None:
    """Two rungs of −0.2 and −0.3 are 1.65 times less from end to end."""
    variants = {"naive": 0.0, "naive+slots": -0.2, "tuned": -0.5}
    trials = Trial("slots", "step", "naive", "naive+slots"), Trial("sets", "step", "naive+slots", "tuned")
    made = figures(tmp_path / "run", variants, *trials)

    assert headline(made).startswith("All 2 changes take less server CPU; the largest effect is that of sets: 25.9")
    assert below_it(made)[0].startswith("tuned answers this request with 1.6")
    assert below_it(made)[1] == "Worth keeping here, the largest effect first: sets and slots."
    assert below_it(made)[-1].startswith("For server CPU, the smallest effect that it could have seen is about 0.")


def test_an_ablation_tries_each_change_twice(tmp_path: Path) -> None:
    """What is tried alone and among the others is one change in two trials, and is worth keeping once."""
    variants = {"naive": 0.0, "naive+slots": -0.2, "tuned-slots": -0.5, "tuned": -0.7}
    trials = Trial("slots", "alone", "naive", "naive+slots"), Trial("slots", "leave_one_out", "tuned-slots", "tuned")
    made = figures(tmp_path / "run", variants, *trials)

    assert headline(made).startswith(
        "All 2 trials of 1 change take less server CPU; the largest effect is that of slots"
    )
    assert "Worth keeping here, the largest effect first: slots." in below_it(made)


def test_counts_alone_are_told_as_counts(tmp_path: Path) -> None:
    """Without a replicate nothing was timed, and naive+sets still asks 11 statements where naive asks 17."""
    folder = write_experiment(
        tmp_path / "run", {name: VARIANTS[name] for name in ("naive", "naive+sets")}, (), replicates=0
    )

    assert headline(figures_of(results.load(folder))) == (
        "For one request naive+sets asks 11 statements where naive asks 17; no time was measured."
    )
    page = write_report(folder).read_text()
    assert "no time was measured.</p>" in page
    assert 'id="comparisons"' in page


def test_few_programs_are_told_one_by_one(tmp_path: Path) -> None:
    """Three variants without trials are two comparisons with the first, each a sentence."""
    made = figures(tmp_path / "run", {name: VARIANTS[name] for name in ("naive", "naive+slots", "tuned")})

    assert [each.partition(" ")[0] for each in below_it(made)] == ["naive+slots", "tuned", "For"]
    assert made.names == {("naive", "naive+slots"): "naive+slots", ("naive", "tuned"): "tuned"}
