"""The paragraph that ends the Markdown of a comparison."""

from dataclasses import replace
from pathlib import Path

import pytest
from comparisons import comparison
from fake_run import FakeRun, write_run

from placebench import results, units
from placebench.compare.keep.records import Block, FailedPart, WirePass
from placebench.compare.keep.run_folder import error_text
from placebench.errors import GateFailedError
from placebench.report import build_report, render_markdown
from placebench.report.conclusion import conclusion
from placebench.report.effects import headline
from placebench.report.figures import Figures, figures_of
from placebench.report.gates import parse_gates
from placebench.report.model import Check
from placebench.stats import Comparison
from placebench.stats.verdict import BELOW_MARGIN, EQUIVALENT, FASTER, INCONCLUSIVE, SLOWER, Verdict

NO_CLAIM = "No speed-up may be claimed."
CLAIM = "The speed-up may be claimed for this run's requests."


def compared(verdict: Verdict, ratio: float = 0.8, *, metric: str = "cpu_s", variant: str = "quick") -> Comparison:
    """A comparison of 12 replicates with base."""
    limits = {"low": ratio - 0.01, "high": ratio + 0.01, "baseline_value": 1.0, "variant_value": ratio}
    return comparison(variant=variant, metric=metric, ratio=ratio, verdict=verdict, **limits)


def write(folder: Path, run: FakeRun) -> results.Run:
    """A comparison on the disk."""
    head = results.load(write_run(folder, run)).head
    replace(head, command="compare").save(folder / "run.json")
    return results.load(folder)


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    """Of a comparison of base and quick whose responses are the same."""
    return figures_of(write(tmp_path / "run", FakeRun(variants=("base", "quick"), replicates=1)))


@pytest.mark.parametrize(
    ("cpu", "wall", "faster", "claim"),
    [
        (compared(FASTER), compared(FASTER, metric="wall_s"), "yes", CLAIM),
        (compared(FASTER), compared(INCONCLUSIVE, 1.0, metric="wall_s"), "yes", CLAIM),
        (compared(FASTER), compared(SLOWER, 1.4, metric="wall_s"), "no", NO_CLAIM),
        (compared(FASTER), compared(INCONCLUSIVE, 2.9, metric="wall_s"), "no", NO_CLAIM),
        (compared(SLOWER, 1.2), compared(FASTER, metric="wall_s"), "no", NO_CLAIM),
        (compared(EQUIVALENT, 1.0), compared(FASTER, metric="wall_s"), "no", NO_CLAIM),
        (compared(BELOW_MARGIN, 0.99), compared(EQUIVALENT, 1.0, metric="wall_s"), "no", NO_CLAIM),
        (compared(INCONCLUSIVE, 0.99), compared(INCONCLUSIVE, 0.99, metric="wall_s"), "not known", NO_CLAIM),
    ],
)
def test_each_outcome(cpu: Comparison, wall: Comparison, faster: str, claim: str, figures: Figures) -> None:
    """Faster is what takes less CPU and not longer; less CPU and more time is waiting, and more CPU is not a speed-up.

    A wall time whose interval lies above no change is longer, also where too many metrics leave it inconclusive.
    """
    said = conclusion(replace(figures, comparisons=(cpu, wall)))

    assert said.startswith("Same responses: yes, ")
    assert f" Faster: {faster}. " in said
    assert "How sure: 12 replicates of fresh processes. Minimum detectable effect (MDE) on server CPU" in said
    assert said.endswith(claim)


def test_waiting_is_no_speed_up(figures: Figures) -> None:
    """Less CPU and more time is not called faster, in the headline neither."""
    made = replace(figures, comparisons=(compared(FASTER), compared(SLOWER, 1.4, metric="wall_s")))
    sentence = (
        "quick takes less CPU than base, and more time: −20 % CPU [95 % CI −21, −19; n = 12]; "
        "+40 % wall time [95 % CI +39, +41; n = 12]."
    )

    assert headline(made) == sentence
    assert f"Faster: no. {sentence} How sure" in conclusion(made)


def test_the_effect_is_in_it(figures: Figures) -> None:
    """By how much, with its interval and n; what was not measured is named by its metrics."""
    said = conclusion(replace(figures, comparisons=(compared(FASTER),)))

    assert "quick is faster than base: −20 % CPU [95 % CI −21, −19; n = 12]." in said
    assert "Not measured: wall time; memory (PSS); statements; rows; round trips; bytes sent; bytes received; " in said


def test_an_application_without_cpu_says_why(tmp_path: Path) -> None:
    """Who connects anew for each request learns it, and what to do, on the page and in the paragraph."""
    run = write(tmp_path / "run", FakeRun(variants=("base", "quick"), replicates=6, backend_cpu=False))
    reason = "Server CPU of base and quick was not measured: the database connections did not stay the same"

    assert reason in conclusion(figures_of(run))
    assert reason in " ".join(build_report(run).notices)
    assert "Server CPU of" not in conclusion(figures_of(write(tmp_path / "other", FakeRun(variants=("base", "quick")))))


def test_a_sequential_run_says_that_its_intervals_hold_at_any_moment(figures: Figures) -> None:
    """The design is part of how sure it is."""
    made = replace(compared(FASTER), is_sequential=True)

    assert "12 replicates of fresh processes, with intervals that hold at any moment of the run" in conclusion(
        replace(figures, comparisons=(made,))
    )


def test_several_variants_each_have_their_own_claim(figures: Figures) -> None:
    """The faster one alone may be claimed."""
    comparisons = compared(FASTER), compared(SLOWER, 1.3, variant="slow"), compared(EQUIVALENT, 1.0, variant="same")
    pairs = tuple(replace(figures.pairs[0], variant=each.variant, name=each.variant) for each in comparisons)

    said = conclusion(replace(figures, comparisons=comparisons, pairs=pairs))

    assert said.count("Faster: ") == 3
    assert said.endswith("A speed-up may be claimed for this run's requests of quick, and of no other variant.")


def test_without_the_same_responses_there_is_no_claim(tmp_path: Path) -> None:
    """Responses that differ, or were never compared: no speed and no more."""
    differing = write(tmp_path / "one", FakeRun(variants=("base", "quick"), equal=False, difference="$.a is 1"))
    unknown = write(tmp_path / "two", FakeRun(variants=("base", "quick"), equal=None))

    assert conclusion(figures_of(differing)) == f"Same responses: no. {NO_CLAIM}"
    assert conclusion(figures_of(unknown)) == (
        f"Same responses: not known, the run ended before they were compared. {NO_CLAIM}"
    )


def test_responses_that_are_not_compared_need_their_reason(figures: Figures) -> None:
    """It is repeated, and belongs to the claim."""
    off = replace(figures.responses, equal=None, off="prices change")
    head = replace(figures.run.head, same_responses={"equal": None, "off": "prices change"})
    made = replace(figures, responses=off, run=replace(figures.run, head=head), comparisons=(compared(FASTER),))

    said = conclusion(made)

    assert said.startswith("Same responses: not compared, because prices change; ")
    assert said.endswith("The speed-up may be claimed with the reason why responses were not compared.")


def test_what_failed_is_named_and_a_gate_that_did_not_pass_forbids_the_claim(figures: Figures) -> None:
    """A part of the run, a failed run, a gate that failed, and one whose figure is missing."""
    made = replace(figures, comparisons=(compared(FASTER),))
    failed = replace(figures.run.head, failed_parts=[FailedPart("profile", "quick", "a worker died")])

    parts = conclusion(replace(made, run=replace(figures.run, head=failed)))
    ended = conclusion(replace(made, run=replace(figures.run, head=replace(figures.run.head, status="failed"))))
    gates = [
        conclusion(made, [Check("statements < 1x", "quick", outcome, "not measured")])
        for outcome in ("failed", "inconclusive", "passed")
    ]

    assert "The profile of quick failed: a worker died." in parts
    assert "This run failed" in ended
    assert ended.endswith(NO_CLAIM)
    assert "Gates failed: statements < 1x (quick: not measured)." in gates[0]
    assert "Gates inconclusive: statements < 1x (quick: not measured)." in gates[1]
    assert [each.endswith(CLAIM) for each in gates] == [False, False, True]


@pytest.mark.parametrize(
    ("base", "quick", "expected"),
    [
        ((11.0, 0.0), (0.0, 11.0), "quick keeps results between requests: its start and its first requests sent 11"),
        ((11.0, 0.0), (0.0, 1.0), "quick keeps results between requests: its start and its first requests sent 1 "),
        ((11.0, 3.0), (1.0, 14.0), "quick keeps results between requests"),
        ((11.0, 0.0), (0.0, 0.0), "quick sends no statements on tables, base 11 per request"),
        ((11.0, 0.0), (1.0, 0.0), ""),
        ((11.0, 3.0), (1.0, 3.0), ""),
        ((11.0, 0.0), (11.0, 5.0), ""),
        ((None, None), (0.0, 0.0), ""),
    ],
)
def test_statements_that_come_once_are_results_that_are_kept(
    base: tuple[float | None, float | None],
    quick: tuple[float | None, float | None],
    expected: str,
    figures: Figures,
) -> None:
    """Statements of a later request, and those of the start and the first ones beyond that; a join is not a cache."""
    one = [1.0]
    wire = {
        name: WirePass(name, one, one, one, one, one, one, table_statements=later, first_statements=first)
        for name, (later, first) in (("base", base), ("quick", quick))
    }

    made = replace(figures, run=replace(figures.run, wire=wire), comparisons=(compared(FASTER),))
    said = conclusion(made)

    assert expected in said
    assert bool(expected) == ("keeps results" in said or "no statements on tables" in said)
    assert ("quick keeps results" in expected) == headline(made).endswith("if the same requests repeat.")
    assert "if the same requests repeat" not in headline(replace(made, comparisons=(compared(SLOWER),)))


@pytest.mark.parametrize(
    ("base", "quick", "passes"),
    [
        ((2.0, 2.0), (2.0, 0.0), False),
        ((2.0, 2.0), (2.0, 20.0), False),
        ((2.0, 0.0), (2.0, 2.0), False),
        ((2.0, 0.0), (2.0, 0.0), True),
        ((2.0, 2.0), (2.0, 2.4), True),
        ((2.0, None), (2.0, 0.0), True),
    ],
)
def test_counts_that_are_not_those_of_the_timed_requests_pass_no_gate(
    base: tuple[float, float | None], quick: tuple[float, float | None], passes: bool, tmp_path: Path
) -> None:
    """Counted and timed statements: a cache that fills later; one that both variants have changes neither count."""
    one = [2.0]
    run = write(tmp_path / "run", FakeRun(variants=("base", "quick"), replicates=6))
    wire = {
        name: WirePass(name, one, one, one, one, one, one, table_statements=then, timed_statements=now)
        for name, (then, now) in (("base", base), ("quick", quick))
    }
    run = replace(run, wire=wire)
    gates = parse_gates(["statements <= 1.0x", "rows <= 1", "cpu_s < 9x"])

    outcomes = [each.outcome for each in build_report(run, gates).checks if each.variant == "quick"]

    assert ["passed" if passes else "inconclusive", "failed", "passed"] == outcomes
    figures = replace(figures_of(run), comparisons=(compared(FASTER),))
    assert conclusion(figures).endswith(CLAIM if passes else NO_CLAIM)
    assert (quick == (2.0, 0.0) and not passes) == headline(figures).endswith("if the same requests repeat.")


def test_requests_that_few_processes_served_count_as_not_measured(figures: Figures) -> None:
    """Of four replicates one went on to the 900th request and one ended after 100: three have seen the first 500."""
    blocks = [
        Block(number, round_, place, name, 1, [0.1], 0.1, {"served": served / (2 - round_)})
        for number, served in enumerate((600, 100, 900, 500))
        for round_ in (0, 1)
        for place, name in enumerate(("base", "quick"))
    ]

    said = conclusion(replace(figures, run=replace(figures.run, blocks=blocks)))

    assert "requests after the first 500 of a process; " in said


def test_work_beside_the_requests_is_named(figures: Figures) -> None:
    """A start that takes far longer than the baseline's, and work after the responses; not what is a little more."""
    counters = {"base": (1.0, 0.001), "quick": (2.0, 0.05)}
    blocks = [
        Block(0, 0, place, name, 1, [0.1], 0.1, {"start_cpu_s": counters[name][0], "after_cpu_s": counters[name][1]})
        for place, name in enumerate(("base", "quick", "quick", "base"))
    ]

    said = conclusion(replace(figures, run=replace(figures.run, blocks=blocks)))

    assert "The start of quick takes 2.00 s of CPU time, base 1.00 s: no effect contains that." in said
    assert "quick does 50 % of its work after its responses" in said
    assert "base does" not in said
    start = compared(SLOWER, 2.0, metric="start_cpu_s")
    figures = replace(figures, comparisons=(start,), run=replace(figures.run, blocks=blocks))
    assert "The start of quick takes" not in conclusion(figures)  # its effect has a sentence


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ({"quick": [1, 1, 3]}, "quick lost connections in 2 replicates that are discarded, base in none: "),
        ({"base": [1], "quick": [2, 3]}, "quick lost connections in 2 replicates that are discarded, base in 1: "),
        ({"base": [1, 2], "quick": [2, 3]}, ""),
    ],
)
def test_a_variant_that_may_crash_is_named(lost: dict[str, list[int]], expected: str, figures: Figures) -> None:
    """By the replicates in which it lost connections, where the baseline lost them in fewer."""
    discarded = [
        Block(number, 0, place, name, 1, [0.1], None, {"lost_connections": 1}, invalid=f"{name}: 1 request failed")
        for name, numbers in lost.items()
        for place, number in enumerate(numbers)
    ]
    blocks = [*figures.run.blocks, *discarded]

    said = conclusion(replace(figures, run=replace(figures.run, blocks=blocks)))

    assert expected in said
    assert bool(expected) == ("lost connections" in said)


def test_how_responses_differ_is_said_once_in_the_markdown(tmp_path: Path) -> None:
    """Below the result, before the sentence on how the run ended: it is the failure that ended it."""
    different = f"/orders: quick: $.total: 1 in base, {units.count(2000)} in quick"
    note = error_text(GateFailedError(f"{different}; no speed"))
    failed = FakeRun(variants=("base", "quick"), equal=False, difference=different, status="failed", note=note)
    report = build_report(write(tmp_path / "run", failed))

    assert " ".join(render_markdown(report).split()).count("1 in base, 2 000 in quick") == 1
    assert different == report.notices[0]
    assert "This run failed: the report shows" in report.notices[1]


def test_the_markdown_ends_with_it(tmp_path: Path) -> None:
    """And the document has it; a load test compares nothing and has none."""
    run = write(tmp_path / "run", FakeRun(variants=("base", "quick")))
    report = build_report(run)
    load = build_report(write_run(tmp_path / "load", FakeRun(variants=("base", "quick"))))

    assert render_markdown(report).splitlines()[-1] == report.conclusion == report.document["conclusion"]
    assert report.conclusion.endswith(CLAIM)
    assert load.conclusion == ""
