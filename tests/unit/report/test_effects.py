"""Effects, verdicts and headlines as text."""

from dataclasses import replace
from pathlib import Path

import pytest
from comparisons import comparison as made_up
from fake_experiment import VARIANTS, write_experiment

from placebench import results
from placebench.compare.keep.documents import Trial
from placebench.report import write_report
from placebench.report.effects import (
    comparison_sentence,
    detectable_text,
    effect_column,
    effect_text,
    headline,
    lifetime_sentences,
    power_sentence,
    several_headline,
    shorten_statements,
    summary_sentences,
    verdict_text,
)
from placebench.report.figures import Figures, figures_of
from placebench.report.trial_results import experiment_results, keep_sentence
from placebench.stats import Comparison, compare_counts, compare_profiled
from placebench.stats.verdict import BELOW_MARGIN, INCONCLUSIVE

MADE = made_up(baseline="naive", variant="tuned", ratio=0.32, low=0.31, high=0.33, replicates=6, log_ratios=(-1.1,) * 6)


@pytest.mark.parametrize(
    ("comparison", "sentence"),
    [
        (MADE, "tuned is faster than naive: −68 % CPU [95 % CI −69, −67; n = 6], 3.1× faster."),
        (
            replace(MADE, metric="wall_s", ratio=1.0422, low=1.039, high=1.045, verdict="slower"),
            "tuned is slower than naive: +4.2 % wall time [95 % CI +3.9, +4.5; n = 6].",
        ),
        (
            replace(MADE, ratio=0.995, low=0.992, high=0.999, verdict=BELOW_MARGIN),
            "tuned differs from naive by less than the margin of 1 %: −0.50 % CPU [95 % CI −0.80, −0.10; n = 6].",
        ),
        (
            replace(MADE, ratio=1.001, low=0.998, high=1.004, verdict="equivalent"),
            "tuned and naive are equivalent (margin 1 %): +0.10 % CPU [95 % CI −0.20, +0.40; n = 6].",
        ),
        (
            replace(MADE, ratio=0.98, low=0.95, high=1.02, verdict=INCONCLUSIVE, detectable=0.03),
            (
                "tuned against naive is inconclusive: −2.0 % CPU [95 % CI −5.0, +2.0; n = 6]; "
                "about 14 replicates find a change of 2.0 % in 4 of 5 runs."
            ),
        ),
        (
            replace(MADE, low=None, high=None, verdict=INCONCLUSIVE, reason=f"{INCONCLUSIVE}: 3 replicates, 6 needed"),
            "tuned against naive is inconclusive: 3 replicates, 6 needed.",
        ),
        (
            replace(MADE, metric="p95_s", ratio=None, low=None, log_ratios=(), needs="needs 9 requests"),
            "tuned against naive is inconclusive: p95 latency under load was not measured: it needs 9 requests.",
        ),
    ],
)
def test_the_first_sentence(comparison: Comparison, sentence: str) -> None:
    """Each verdict has its words; none of them is "no difference"."""
    assert comparison_sentence(comparison) == sentence


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.32, "−68 % [no CI; n = 6], 3.1× faster"),
        (3.1, "+210 % [no CI; n = 6], 3.1× slower"),
        (0.9, "−10 % [no CI; n = 6]"),
        (1.25, "+25 % [no CI; n = 6]"),
    ],
)
def test_a_large_effect_is_a_factor_too(ratio: float, text: str) -> None:
    """From one and a half times on, either way, the factor is written as well."""
    assert effect_text(replace(MADE, ratio=ratio, low=None, high=None)) == text


def test_an_effect_has_as_many_digits_as_tell_its_limits_apart() -> None:
    """−76.9 % between −77.3 and −76.4, all with three digits."""
    made = replace(MADE, ratio=0.231, low=0.227, high=0.236, replicates=30)

    assert effect_text(made, named=True) == "−76.9 % CPU [95 % CI −77.3, −76.4; n = 30], 4.3× faster"


def test_what_was_not_measured_is_called_so() -> None:
    """Neither 0 % nor an empty place, and no verdict."""
    missing = replace(MADE, ratio=None, low=None, high=None, verdict=INCONCLUSIVE, log_ratios=())

    assert [effect_text(missing), verdict_text(missing)] == ["not measured"] * 2


@pytest.mark.parametrize(
    ("metric", "before", "after", "effect", "verdict"),
    [
        ("statements", [17.0] * 6, [17.0] * 6, "the same", "equivalent"),
        ("statements", [0.0] * 6, [0.0] * 6, "the same", "equivalent"),
        ("statements", [0.0] * 6, [5.0] * 6, "0 → 5", "more"),
        ("bytes_sent", [2048.0] * 6, [0.0] * 6, "2.00 KiB → 0 B", "less"),
        ("rows", [10.0] * 6, [9.0] * 6, "−10 %", "less"),
        ("rows", [10.0] * 6, [9.0, 8.0] * 3, "−15 % [95 % CI −20, −10; n = 6]", "less"),
    ],
)
def test_counts_are_reported_as_counts(
    metric: str, before: list[float], after: list[float], effect: str, verdict: str
) -> None:
    """What has no ratio is reported by its values, what is equal is the same, and nothing counted is faster."""
    made = compare_counts(before, after, "naive", "tuned", metric)

    assert (effect_text(made), verdict_text(made)) == (effect, verdict)


COUNTED = compare_counts([17.0] * 12, [18.0] * 12, "naive", "tuned", "statements")


@pytest.mark.parametrize(
    ("comparisons", "heading"),
    [
        ([COUNTED], "effect"),
        ([COUNTED, MADE], "effect [95 % CI; n = 6]"),
    ],
)
def test_the_heading_of_the_effects_counts_replicates(comparisons: list[Comparison], heading: str) -> None:
    """Twelve counted requests are not twelve replicates: without a measured metric the heading has no interval."""
    assert heading == effect_column(comparisons).label


def test_pauses_that_are_gone_are_reported_by_their_values() -> None:
    """120 ms of GC pauses and none at all: there is no ratio, and both were measured."""
    gone = compare_profiled([0.12] * 3, [0.0] * 3, "naive", "tuned", "gc_s")

    assert effect_text(gone) == "120 ms → 0 s"


def test_only_times_are_faster() -> None:
    """Memory is less or more, as counts are."""
    assert [verdict_text(replace(MADE, metric=metric)) for metric in ("cpu_s", "wall_s", "pss_bytes", "rows")] == [
        "faster",
        "faster",
        "less",
        "less",
    ]


def test_the_minimum_detectable_effect() -> None:
    """Two digits of it, and whether that is a rough figure."""
    assert power_sentence([replace(MADE, replicates=20)]) == (
        "Minimum detectable effect (MDE) on server CPU at 80 % power: 1.2 %."
    )
    assert power_sentence([MADE]) == (
        "Minimum detectable effect (MDE) on server CPU at 80 % power: 1.2 % (rough with fewer than 20 replicates)."
    )
    assert power_sentence([MADE, replace(MADE, detectable=0.02)]).count("1.2 % to 2.0 %") == 1
    assert "unknown" in power_sentence([replace(MADE, detectable=None)])


def test_a_detectable_effect_is_reported_as_effects_are() -> None:
    """A log ratio of 0.693 is twice as much: 100 % more, as an effect of that size would be; it is not 69 %."""
    assert detectable_text(replace(MADE, detectable=0.6931)) == "100 %"
    assert detectable_text(replace(MADE, detectable=None)) == "not measured"


FASTER = replace(MADE, variant="slots", ratio=0.8, low=0.79, high=0.81, replicates=12, detectable=0.01)
SLOWER = replace(FASTER, variant="sets", ratio=1.1, low=1.09, high=1.11, verdict="slower")
ALIKE = replace(FASTER, variant="rows", ratio=1.0, low=0.999, high=1.001, verdict="equivalent")
OPEN = replace(
    ALIKE, variant="none", low=None, high=None, verdict=INCONCLUSIVE, reason=f"{INCONCLUSIVE}: 3 replicates, 6"
)
MARGINAL = replace(FASTER, variant="copies", ratio=0.991, low=0.983, high=0.999, verdict=BELOW_MARGIN)
WIDE = replace(FASTER, variant="freeze", ratio=1.08, low=0.98, high=1.18, verdict=INCONCLUSIVE)
UNMEASURED = replace(OPEN, variant="pool", ratio=None, log_ratios=(), reason="not measured: cpu_s")
NAMES = {("naive", each.variant): each.variant for each in (FASTER, SLOWER, ALIKE, OPEN, MARGINAL, WIDE, UNMEASURED)}
SLOTS = "Largest: slots −20 % CPU [95 % CI −21, −19; n = 12]."


@pytest.mark.parametrize(
    ("primaries", "many", "sentence"),
    [
        (
            [FASTER, SLOWER, ALIKE, OPEN],
            "4 changes",
            f"1 of 4 changes reduces CPU, 1 increases it, 1 is equivalent, 1 is inconclusive. {SLOTS}",
        ),
        ([FASTER, FASTER, SLOWER], "3 changes", f"2 of 3 changes reduce CPU, 1 increases it. {SLOTS}"),
        ([FASTER, FASTER], "2 variants", f"Both variants reduce CPU. {SLOTS}"),
        ([ALIKE, ALIKE], "2 changes", "Both changes are equivalent. No effect reaches its margin."),
        ([OPEN, OPEN, OPEN], "3 changes", "All 3 changes are inconclusive. 3 replicates, 6."),
        ([WIDE, WIDE], "2 changes", "Both changes are inconclusive."),
        ([ALIKE, WIDE], "2 changes", "1 of 2 changes is equivalent, 1 is inconclusive."),
        (
            [MARGINAL, ALIKE, WIDE],
            "3 changes",
            (
                "1 of 3 changes is below the margin, 1 is equivalent, 1 is inconclusive. Largest: copies −0.90 % CPU "
                "[95 % CI −1.7, −0.10; n = 12]."
            ),
        ),
        (
            [FASTER, SLOWER, UNMEASURED],
            "3 variants",
            f"1 of 3 variants reduces CPU, 1 increases it, 1 was not measured. {SLOTS}",
        ),
        (
            [SLOWER, SLOWER],
            "2 variants",
            "Both variants increase CPU. Largest: sets +10 % CPU [95 % CI +9.0, +11; n = 12].",
        ),
    ],
)
def test_several_comparisons_in_one_sentence(primaries: list[Comparison], many: str, sentence: str) -> None:
    """How many of them do what, and the largest effect with its interval and verdict."""
    assert several_headline(primaries, NAMES, many=many) == sentence


def test_different_statements_have_different_names() -> None:
    """Verb and table are enough for one statement; of two with the same, the texts are shown."""
    counted, listed, other = "select count(*) from book where id = ?", "select id from book", "select a, b from item"

    assert [counted, listed, "select … item"] == shorten_statements([counted, listed, other])
    assert ["select … book", "select … book"] == shorten_statements([listed, listed])


def test_long_statements_that_differ_in_a_column_show_it() -> None:
    """Not the columns before it; of those that differ behind their columns, the first column stays."""
    columns = ", ".join(f"book.column_{i}" for i in range(9))
    without, added = f"SELECT {columns} FROM book", f"SELECT {columns}, book.history, book.size FROM book"

    assert ["SELECT … FROM book", "SELECT … book.history, book.size FROM book"] == shorten_statements([without, added])
    assert ["SELECT book.column_0, … FROM book WHERE id = $1", "SELECT book.column_0, … FROM book"] == (
        shorten_statements([f"{without} WHERE id = $1", without])
    )


def test_more_says_of_what_and_than_what() -> None:
    """The first verdict of them names the metric and the baseline, whichever it is."""
    said = several_headline([SLOWER, ALIKE], NAMES, many="2 variants", baseline="naive")

    assert said.startswith("1 of 2 variants increases CPU compared with naive, 1 is equivalent. ")


def test_the_order_of_the_variants_does_not_choose_the_metric(tmp_path: Path) -> None:
    """The CPU of the first variant was not measured: the sentence speaks of that of the other, and says so."""
    variants = {name: VARIANTS[name] for name in ("naive", "naive+slots", "tuned")}
    run = results.load(write_experiment(tmp_path / "run", variants, ()))
    blocks = [replace(block, cpu_s=None) if block.variant == "naive+slots" else block for block in run.blocks]
    made = figures_of(replace(run, blocks=blocks))

    assert headline(made).startswith(
        "1 of 2 variants reduces CPU compared with naive, 1 was not measured. Largest: tuned −50."
    )
    assert summary_sentences(made)[0] == "naive+slots against naive is inconclusive: server CPU was not measured."


def test_a_pair_without_an_interval_gives_its_reason_once(tmp_path: Path) -> None:
    """Two replicates: the headline says so for CPU, and no sentence repeats it for wall time."""
    variants = {"naive": 0.0, "tuned": -0.5}
    made = figures_of(results.load(write_experiment(tmp_path / "run", variants, (), replicates=2)))

    (power,) = summary_sentences(made)
    assert headline(made) == "tuned against naive is inconclusive: 2 replicates, 6 needed."
    assert power.startswith("Minimum detectable effect")


def test_what_is_kept_is_worth_keeping(tmp_path: Path) -> None:
    """Slots for their CPU, sets for their fewer statements: both are named, as in the results table."""
    variants = {name: VARIANTS[name] for name in ("naive", "naive+slots", "naive+sets")}
    trials = Trial("sets", "own", "naive", "naive+sets"), Trial("slots", "own", "naive", "naive+slots")

    assert keep_sentence(experiment_results(figures(tmp_path / "run", variants, *trials))) == [
        "Worth keeping, the largest effect first: slots and sets."
    ]


def figures(folder: Path, variants: dict[str, float], *trials: Trial) -> Figures:
    return figures_of(results.load(write_experiment(folder, variants, trials)))


def test_a_cumulative_series_says_what_all_steps_bring_together(tmp_path: Path) -> None:
    """Two steps of −0.2 and −0.3 are −39 % from end to end."""
    variants = {"naive": 0.0, "naive+slots": -0.2, "tuned": -0.5}
    trials = Trial("slots", "step", "naive", "naive+slots"), Trial("sets", "step", "naive+slots", "tuned")
    made = figures(tmp_path / "run", variants, *trials)

    assert headline(made).startswith("Both changes reduce CPU. Largest: sets −25.9")
    whole, power = summary_sentences(made)
    assert whole.startswith("tuned is faster than naive: −39.")
    assert whole.endswith("1.6× faster.")
    assert keep_sentence(experiment_results(made)) == ["Worth keeping, the largest effect first: sets and slots."]
    assert power.startswith("Minimum detectable effect (MDE) on server CPU at 80 % power: 0.")


def test_leave_one_out_measures_each_change_twice(tmp_path: Path) -> None:
    """What is measured alone and leave-one-out is one change in two trials, and is worth keeping once."""
    variants = {"naive": 0.0, "naive+slots": -0.2, "tuned-slots": -0.5, "tuned": -0.7}
    trials = Trial("slots", "alone", "naive", "naive+slots"), Trial("slots", "leave_one_out", "tuned-slots", "tuned")
    made = figures(tmp_path / "run", variants, *trials)

    assert headline(made).startswith("Both trials of 1 change reduce CPU. Largest: slots")
    assert keep_sentence(experiment_results(made)) == ["Worth keeping, the largest effect first: slots."]


def test_counts_alone_are_reported_as_counts(tmp_path: Path) -> None:
    """Without a replicate nothing was timed, and naive+sets still sends 11 statements where naive sends 17."""
    folder = write_experiment(
        tmp_path / "run", {name: VARIANTS[name] for name in ("naive", "naive+sets")}, (), replicates=0
    )

    assert headline(figures_of(results.load(folder))) == (
        "Statements per request: naive+sets 11, naive 17; no time was measured."
    )
    page = write_report(folder).read_text()
    assert "no time was measured.</p>" in page
    assert 'id="comparisons"' in page


def test_few_variants_are_described_one_by_one(tmp_path: Path) -> None:
    """Three variants without trials are two comparisons with the first, each a sentence."""
    made = figures(tmp_path / "run", {name: VARIANTS[name] for name in ("naive", "naive+slots", "tuned")})

    assert [each.partition(" ")[0] for each in summary_sentences(made)] == ["naive+slots", "tuned", "Minimum"]
    assert made.names == {("naive", "naive+slots"): "naive+slots", ("naive", "tuned"): "tuned"}


def test_a_share_of_slow_requests_is_said_as_a_share() -> None:
    """Many times nearly nothing may be little: the sentence has both shares."""
    seen = {"ratio": 36.0, "low": 12.0, "high": 89.0, "verdict": "slower", "replicates": 8}
    made = replace(MADE, metric="slow_share", baseline_value=0.0005, variant_value=0.02, **seen)

    (sentence,) = lifetime_sentences([made])

    assert sentence.endswith("That is 2.0 % of the requests instead of 0.050 %.")
