"""The results of an experiment: decisions, hypotheses and interactions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import TRIALS, VARIANTS, write_experiment
from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.documents import Trial
from placebench.compare.keep.records import Block, FrameTime, ProfiledReplicate, WirePass, append_lines
from placebench.report import comparisons_of, write_report
from placebench.report.figures import figures_of
from placebench.report.trial_results import ExperimentResults, experiment_results
from placebench.stats import Comparison
from placebench.stats.multiple_testing import interaction_effects
from placebench.stats.verdict import BELOW_MARGIN, EQUIVALENT, Verdict


def experiment(
    folder: Path,
    variants: Mapping[str, float] = VARIANTS,
    trials: Sequence[Trial] = TRIALS,
    *,
    replicates: int = 12,
    equal: bool = True,
) -> results.Run:
    """The run that `write_experiment` makes."""
    return results.load(write_experiment(folder, variants, trials, replicates=replicates, equal=equal))


def results_of(run: results.Run, comparisons: Sequence[Comparison] | None = None) -> ExperimentResults:
    """The results of the run, by its own comparisons or by these."""
    figures = figures_of(run)
    return experiment_results(figures if comparisons is None else replace(figures, comparisons=tuple(comparisons)))


@pytest.fixture
def run(tmp_path: Path) -> results.Run:
    """slots gain 18 %, alone and leave-one-out alike; sets gain nothing, but ask less."""
    return experiment(tmp_path / "run", VARIANTS)


def test_what_gains_is_kept_and_what_does_not_is_dropped(run: results.Run) -> None:
    """slots by its CPU, sets alone by its statements, sets leave-one-out not at all."""
    entries = {(each.name, each.kind): each for each in results_of(run).changes}

    assert (entries["slots", "alone"].verdict, entries["slots", "alone"].decision) == ("faster", "kept")
    assert entries["slots", "alone"].ratio == pytest.approx(math.exp(-0.2), rel=0.01)
    assert entries["sets", "alone"].decision == "kept"
    assert (
        entries["sets", "alone"].why == "fewer statements, rows, round trips, and no detectable increase of server CPU"
    )
    assert (entries["sets", "leave_one_out"].verdict, entries["sets", "leave_one_out"].decision) == (
        "equivalent",
        "dropped",
    )
    assert entries["slots", "leave_one_out"].request == run.head.request


def test_too_few_replicates_stay_open(tmp_path: Path) -> None:
    """Three replicates decide nothing by CPU."""
    run = experiment(tmp_path / "run", VARIANTS, replicates=3)
    entries = {(each.name, each.kind): each for each in results_of(run).changes}

    assert entries["slots", "alone"].decision == "undecided"
    assert entries["slots", "alone"].why.startswith("3 replicates, 6 needed; ")
    assert entries["sets", "alone"].decision == "undecided", "fewer statements, at an unknown CPU"


def test_a_change_whose_cpu_was_not_measured_stays_open(run: results.Run) -> None:
    """It has no effect and no verdict, and the result says why; the others have theirs."""
    blocks = [replace(block, cpu_s=None) if block.variant == "naive+sets" else block for block in run.blocks]
    entries = {(each.name, each.kind): each for each in results_of(replace(run, blocks=blocks)).changes}
    sets = entries["sets", "alone"]

    assert (sets.verdict, sets.decision, sets.why) == ("not measured", "undecided", "server CPU was not measured")
    assert entries["slots", "alone"].decision == "kept"


def test_what_did_not_help_here_may_help_elsewhere(tmp_path: Path) -> None:
    """Where the catalogue names another request, the result says how to send that one."""
    run = experiment(tmp_path / "run", {**VARIANTS, "naive+slots": 0.1})

    slots = next(each for each in results_of(run).changes if each.kind == "alone")

    assert (slots.verdict, slots.decision) == ("slower", "undecided")
    assert slots.why == (
        "more server CPU beyond the margin; it should show on another request: `placebench lab steps --only slots`"
    )


def test_the_results_are_a_table(run: results.Run) -> None:
    """A row per trial, in text, Markdown and JSON."""
    write_report(run)
    markdown = (run.folder / "summary.md").read_text()

    assert "| slots alone | −18" in markdown
    assert "| kept |" in markdown
    assert "| statements: the same: equivalent on /elsewhere, which this run did not request |" in markdown
    assert document_of(run)["results"][0]["name"] == "slots"
    assert "* slots should show on another request: /elsewhere" in markdown
    for text in (markdown, text_of(run)):
        assert "All changes have a larger effect together than the product of their individual effects: −39" in text
    assert "| __slots__ saves CPU | yes | alone −18" in markdown


@pytest.mark.parametrize("verdict", [EQUIVALENT, BELOW_MARGIN])
def test_fewer_statements_at_more_cpu_are_not_kept(run: results.Run, verdict: Verdict) -> None:
    """Under the margin, and yet its whole interval is more: 0.55 % (0.2 to 0.9 %)."""
    dearer = [
        replace(each, ratio=1.0055, low=1.002, high=1.009, verdict=verdict)
        if (each.variant, each.metric) == ("naive+sets", "cpu_s")
        else each
        for each in comparisons_of(run)
    ]
    entries = {(each.name, each.kind): each for each in results_of(run, dearer).changes}

    assert entries["sets", "alone"].decision == "dropped"
    assert (
        entries["sets", "alone"].why
        == "fewer statements, rows, round trips, but +0.55 % CPU [95 % CI +0.20, +0.90; n = 12]"
    )


def test_a_small_change_is_not_within_the_margin(run: results.Run) -> None:
    """0.9 % less, 0.1 to 1.7 %: only the estimate is under 1 %."""
    small = [
        replace(each, ratio=0.991, low=0.983, high=0.999, verdict=BELOW_MARGIN)
        if (each.baseline, each.metric) == ("tuned-sets", "cpu_s")
        else each
        for each in comparisons_of(run)
    ]

    assert results_of(run, small).changes[-1].why == "the estimate is below the margin"


def test_rows_where_there_were_none_are_more(tmp_path: Path) -> None:
    """Fewer statements, and 50 rows where naive asks for none: that is not a reason to keep what saves no CPU."""
    folder = write_experiment(tmp_path / "run")
    for variant, rows in (("naive", 0.0), ("naive+sets", 50.0)):
        path = folder / f"wire-{variant}.json"
        replace(WirePass.load(path), rows=[rows] * 6).save(path)
    entries = {(each.name, each.kind): each for each in results_of(results.load(folder)).changes}

    assert (entries["sets", "alone"].decision, entries["sets", "alone"].why) == (
        "dropped",
        "no change beyond the margin",
    )


def test_differing_responses_have_no_results(tmp_path: Path) -> None:
    """No effect of a variant that is broken: the text says why there is none."""
    run = experiment(tmp_path / "run", VARIANTS, equal=False)

    assert results_of(run).changes == []
    assert text_of(run).splitlines()[0] == "The variants do not do the same, so no speed is printed."
    assert "kept" not in text_of(run)


def test_without_a_response_there_are_no_results(tmp_path: Path) -> None:
    """A run that ended before its first response has no effects, and no row without one."""
    run = experiment(tmp_path / "run", VARIANTS)
    without = replace(run, head=replace(run.head, same_responses={}))

    assert results_of(without).changes == []
    assert "kept" not in text_of(without)


STEPS = {"naive": 0.0, "naive+slots": -0.05, "naive+slots+copies": -0.05, "tuned": -0.05}
STEP_TRIALS = (
    Trial("slots", "step", "naive", "naive+slots"),
    Trial("copies", "step", "naive+slots", "naive+slots+copies", shows_on="/elsewhere"),
    Trial("sets", "step", "naive+slots+copies", "tuned"),
)


def said(
    folder: Path,
    *,
    replicates: int = 12,
    trials: tuple[Trial, ...] = STEP_TRIALS,
    gc_ms: Sequence[int] = (340, 350, 340, 350, 340, 350),
) -> dict[str, tuple[str, str]]:
    """Result and evidence by hypothesis, of steps that begin with a fifth of the time in SQL, a third in GC pauses.

    gc_ms: of the 1000 ms of a mean request, by profiled replicate.
    """
    write_experiment(folder, STEPS, trials, replicates=replicates)
    append_lines(
        folder / "profiled.jsonl",
        [ProfiledReplicate(number, "naive", 9, _frames(each / 1000)) for number, each in enumerate(gc_ms)],
    )
    run = results.load(folder)
    return {each.hypothesis: (each.result, each.evidence) for each in results_of(run).hypotheses}


def _frames(gc_s: float) -> list[FrameTime]:
    """A second of a mean request, and the profiler's own time, which is not the request's."""
    return [
        FrameTime("SELECT 1", "sql", 0.2),
        FrameTime("garbage collection", "gc", gc_s),
        FrameTime("handle", "service.py", 0.8 - gc_s),
        FrameTime("profiler", "profiler", 0.5),
    ]


def test_shares_are_judged_by_their_interval_over_replicates(tmp_path: Path) -> None:
    """A fifth in SQL is not most of the time; of six replicates all have more than 30 % in GC pauses."""
    hypotheses = said(tmp_path / "run")

    assert hypotheses["most of the time is spent in the database"] == (
        "no",
        "naive spends 20 % [95 % CI 20 %, 20 %; n = 6] of a request in SQL, profiled",
    )
    assert hypotheses["a third of the time is spent in GC pauses"][0] == "yes"


@pytest.mark.parametrize("gc_ms", [(340, 350, 360, 350, 340), (100, 200, 300, 400, 500, 600)])
def test_a_share_without_an_interval_on_one_side_is_inconclusive(tmp_path: Path, gc_ms: Sequence[int]) -> None:
    """Five replicates give no interval, and one from 10 to 60 % lies on both sides of 30 %."""
    assert "inconclusive" == said(tmp_path / "run", gc_ms=gc_ms)["a third of the time is spent in GC pauses"][0]


def test_a_change_is_answered_by_its_interval(tmp_path: Path) -> None:
    """slots save 5 %: yes. Sets save nothing: no. Copies neither, but another request is theirs."""
    hypotheses = said(tmp_path / "run")

    assert hypotheses["`__slots__` saves CPU"][0] == "yes"
    assert hypotheses["sets are faster than lists"][0] == "no"
    assert hypotheses["copying objects is a main cost"][0] == "inconclusive"
    assert hypotheses["copying objects is a main cost"][1].endswith(
        "another request than the one on which it should show"
    )


def test_three_replicates_tell_nothing(tmp_path: Path) -> None:
    """Neither yes nor no."""
    assert said(tmp_path / "run", replicates=3)["sets are faster than lists"][0] == "inconclusive"


@pytest.mark.parametrize(("left_out", "result"), [(-0.5, "yes"), (-0.7, "it depends")])
def test_alone_and_leave_the_others_have_to_agree(tmp_path: Path, left_out: float, result: str) -> None:
    """slots save 18 % alone; where they save nothing leave-one-out, it depends."""
    run = results.load(write_experiment(tmp_path / "run", {**VARIANTS, "tuned-slots": left_out}))
    hypotheses = {each.hypothesis: each.result for each in results_of(run).hypotheses}

    assert hypotheses["`__slots__` saves CPU"] == result


def test_without_results_there_are_no_hypotheses(tmp_path: Path) -> None:
    """A comparison of two variants tries no change by name."""
    run = results.load(write_experiment(tmp_path / "run", STEPS, ()))

    assert list(results_of(replace(run, blocks=[])).hypotheses) == []


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


def without_cpu(block: Block) -> Block:
    """The block of a program whose CPU cannot be measured."""
    return replace(block, cpu_s=None)


def test_changes_that_add_up_do_not_interact(tmp_path: Path) -> None:
    """slots do the same in both places, and all together is what they do alone; the results say so."""
    run = experiment(tmp_path / "run", ADDING_UP)

    assert results_of(run).interactions == []
    assert results_of(run).interaction_sentences == [
        "No interaction was found: the changes have the same effect together as apart."
    ]


def test_an_interaction_is_named(tmp_path: Path) -> None:
    """slots gain 18 % alone and 45 % leave-one-out: more together, by a log ratio of −0.4; so does the whole."""
    run = experiment(tmp_path / "run", {**ADDING_UP, "tuned-slots": 0.0, "tuned-sets": -0.6, "tuned": -0.6})
    slots, whole = results_of(run).interactions

    assert (slots.name, whole.name) == ("slots", "all changes")
    assert slots.estimate == pytest.approx(-0.4, abs=0.02)
    assert slots.high < 0
    assert str(slots).startswith("Slots has a larger effect with the other changes than alone: −32.9 % CPU")


def test_two_changes_at_once_are_compared_with_each(tmp_path: Path) -> None:
    """a and b save 0.2 each, and 0.3 together: the log ratio of both is 0.1 above their sum."""
    variants = {"tuned": 0.0, "tuned+a": -0.2, "tuned+b": -0.2, "tuned+a+b": -0.3}
    (found,) = results_of(experiment(tmp_path / "run", variants, OWN)).interactions

    assert found.name == "a and b"
    assert found.estimate == pytest.approx(0.1, abs=0.02)
    assert str(found).startswith(
        "A and b have a smaller effect together than the product of their individual effects: +1"
    )


def test_too_few_replicates_decide_no_interaction(tmp_path: Path) -> None:
    """Three replicates, six needed: neither that there is one nor that there is none."""
    run = experiment(tmp_path / "run", {**ADDING_UP, "tuned": -0.6}, replicates=3)

    assert results_of(run).interactions == []
    assert results_of(run).interaction_sentences == [
        "Interactions of slots, sets and all changes are undecided: 3 replicates, 6 needed."
    ]


def test_a_change_without_cpu_hides_no_other(tmp_path: Path) -> None:
    """The CPU of tuned-sets was not measured: slots and the whole are decided all the same, sets are not."""
    whole = experiment(tmp_path / "run", {**ADDING_UP, "tuned-slots": 0.0, "tuned-sets": -0.6, "tuned": -0.6})
    run = replace(
        whole, blocks=[without_cpu(block) if block.variant == "tuned-sets" else block for block in whole.blocks]
    )

    assert [each.name for each in results_of(run).interactions] == ["slots", "all changes"]
    assert results_of(run).interaction_sentences[2:] == [
        "Interactions of sets are undecided: server CPU was not measured."
    ]


def test_differing_responses_have_no_interactions(tmp_path: Path) -> None:
    """Slots would gain 45 % leave-one-out, of a variant that is broken."""
    variants = {**ADDING_UP, "tuned-slots": 0.0, "tuned": -0.6}
    run = results.load(write_experiment(tmp_path / "run", variants, equal=False))

    assert results_of(run).interactions == []
    assert results_of(run).interaction_sentences == []
    assert document_of(run)["interactions"] == []
    assert "95 % CI" not in text_of(run)


def test_a_run_that_tried_nothing_twice_has_none_to_speak_of(tmp_path: Path) -> None:
    """A cumulative series says nothing of interactions."""
    run = experiment(tmp_path / "run", VARIANTS, (replace(TRIALS[0], kind="step"),))

    assert results_of(run).interaction_sentences == []


def test_the_remainder_is_taken_replicate_by_replicate(tmp_path: Path) -> None:
    """The whole, −0.7, less slots alone, −0.2, and sets alone, 0."""
    run = experiment(tmp_path / "run", VARIANTS)
    left = interaction_effects(run.blocks, ("naive", "tuned"), [("naive", "naive+slots"), ("naive", "naive+sets")])

    assert len(left) == 12
    assert left == pytest.approx([-0.5] * 12, abs=0.05)


def test_the_remainder_lines_up_replicates_by_their_number(tmp_path: Path) -> None:
    """The whole lost replicate 0, slots lost replicate 11: ten are left, each less its own part."""
    run = experiment(tmp_path / "run", VARIANTS)
    blocks = [
        without_cpu(block) if (block.replicate, block.variant) in ((0, "tuned"), (11, "naive+slots")) else block
        for block in run.blocks
    ]
    pairs = ("naive", "tuned"), [("naive", "naive+slots")]

    assert interaction_effects(blocks, *pairs) == interaction_effects(run.blocks, *pairs)[1:-1]
