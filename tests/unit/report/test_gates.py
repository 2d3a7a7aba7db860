"""Gates, and what a CI service reads."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from comparisons import comparison
from fake_run import FakeRun, write_run

from placebench.compare.keep.records import Block, RunHead, WirePass
from placebench.errors import GateFailedError, UndecidedError
from placebench.gates import Gate
from placebench.report import build_report, raise_for_gates, write_report
from placebench.report.gates import judge_gate, judge_gates, parse_gates
from placebench.stats import Comparison, compare_blocks, compare_counts


def gate_of(text: str) -> Gate:
    """The gate that this text states."""
    (gate,) = parse_gates([text])
    return gate


def made(
    metric: str = "cpu_s", *, low: float | None = None, high: float | None = None, value: float | None = None
) -> Comparison:
    """A comparison with these limits, or with this value of the variant."""
    middle = None if low is None or high is None else (low + high) / 2
    return comparison(
        metric=metric, ratio=middle, low=low, high=high, verdict="inconclusive", log_ratios=(), variant_value=value
    )


def timed(variant_s: Sequence[float]) -> Comparison:
    """A comparison whose variant took so long in each replicate, a request, as its CPU."""
    blocks = [
        Block(number, 0, place, variant, 1, [level], level)
        for number, level in enumerate(variant_s)
        for place, variant in enumerate(("base", "change", "change", "base"))
    ]
    return compare_blocks(blocks, "base", "change", "cpu_s")


def counted(before: Sequence[float], after: Sequence[float]) -> Comparison:
    """A comparison of so many statements a request."""
    return compare_counts(before, after, "base", "change", "statements")


@pytest.mark.parametrize(
    ("gate", "value", "outcome"),
    [
        ("statements <= 18", 19.0, "failed"),
        ("statements <= 18", 18.0, "passed"),
        ("statements < 18", 18.0, "failed"),
        ("bytes_sent > 1e3", 900.0, "failed"),
        ("rows <= 18", None, "inconclusive"),
    ],
)
def test_a_value_is_compared_with_its_limit(gate: str, value: float | None, outcome: str) -> None:
    """A gate says what must hold; what was not measured is inconclusive."""
    read = gate_of(gate)

    assert judge_gate(read, made(read.metric, value=value)).outcome == outcome


@pytest.mark.parametrize(
    ("gate", "outcome", "seen"),
    [
        ("cpu_s <= 0.2", "inconclusive", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
        ("cpu_s <= 0.19", "inconclusive", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
        ("cpu_s <= 0.18", "failed", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
        ("cpu_s <= 0.23", "passed", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
        ("cpu_s >= 0.2", "inconclusive", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
        ("cpu_s >= 0.23", "failed", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
        ("cpu_s >= 0.18", "passed", "205 ms [95 % CI 190 ms, 220 ms; n = 6]"),
    ],
)
def test_a_time_is_compared_with_its_limit_by_the_whole_interval(gate: str, outcome: str, seen: str) -> None:
    """Six replicates from 190 to 220 ms: their interval is their range, and a limit within is inconclusive."""
    judged = judge_gate(gate_of(gate), timed([0.19, 0.20, 0.205, 0.205, 0.21, 0.22]))

    assert (judged.outcome, judged.measured) == (outcome, seen)


def test_one_replicate_decides_no_limit_of_a_time() -> None:
    """210 ms are beyond 200 ms, and once is not enough to say so."""
    judged = judge_gate(gate_of("cpu_s <= 0.2"), timed([0.21]))

    assert (judged.outcome, judged.measured) == ("inconclusive", "210 ms, 1 replicate, 6 needed")


@pytest.mark.parametrize(
    ("gate", "before", "after", "outcome", "seen"),
    [
        ("statements <= 1x", [0.0] * 12, [5.0] * 12, "failed", "0 → 5"),
        ("statements <= 1x", [5.0] * 12, [0.0] * 12, "passed", "5 → 0"),
        ("statements >= 0.9x", [5.0] * 12, [0.0] * 12, "failed", "5 → 0"),
        ("statements <= 1x", [1.0, 0.0] * 6, [1.0] * 12, "failed", "0.500 → 1"),
        ("statements <= 2x", [1.0, 0.0] * 6, [1.0] * 12, "passed", "0.500 → 1"),
        ("statements <= 1x", [1.0, 0.0] * 6, [0.0, 1.0] * 6, "passed", "the same"),
        ("statements <= 1x", [0.0] * 12, [0.0] * 12, "passed", "the same"),
        ("statements <= 1x", [17.0] * 2, [18.0] * 2, "failed", "+5.9 % [no CI; n = 2]"),
        ("statements <= 1x", [], [], "inconclusive", "not measured"),
    ],
)
def test_a_count_without_an_interval_is_compared_by_its_value(
    gate: str, before: Sequence[float], after: Sequence[float], outcome: str, seen: str
) -> None:
    """From none to five is more, and counts have no noise: the means of the counted requests decide."""
    judged = judge_gate(gate_of(gate), counted(before, after))

    assert (judged.outcome, judged.measured) == (outcome, seen)


@pytest.mark.parametrize(
    ("gate", "low", "high", "outcome"),
    [
        ("cpu_s <= 1.03x", 1.031, 1.08, "failed"),
        ("cpu_s <= 1.03x", 0.99, 1.02, "passed"),
        ("cpu_s <= 1.03x", 1.01, 1.05, "inconclusive"),
        ("cpu_s <= 1x", 1.001, 1.05, "failed"),
        ("cpu_s >= 0.5x", 0.30, 0.40, "failed"),
        ("cpu_s >= 0.5x", 0.60, 0.90, "passed"),
        ("cpu_s <= 1.03x", None, None, "inconclusive"),
        ("cpu_s <= 1x", 1.0, 1.0, "passed"),
        ("cpu_s >= 0.9x", 0.5, 0.6, "failed"),
    ],
)
def test_a_change_is_compared_by_its_whole_interval(
    gate: str, low: float | None, high: float | None, outcome: str
) -> None:
    """Beyond the limit as a whole it failed, within it as a whole it passed, and else it is inconclusive."""
    assert judge_gate(gate_of(gate), made(low=low, high=high)).outcome == outcome


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of naive and tuned with six replicates, 29 and 11 statements a request."""
    made = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned")))
    for name, statements in (("naive", 29.0), ("tuned", 11.0)):
        six = [statements] * 6
        WirePass(name, six, six, six, six, six, six).save(made / f"wire-{name}.json")
    return made


def test_gates_of_a_run(folder: Path) -> None:
    """tuned takes less of everything: what it does not exceed passes, what it exceeds fails."""
    passed = [gate_of("statements <= 18"), gate_of("cpu_s <= 1.03x")]

    raise_for_gates(build_report(folder, passed))
    with pytest.raises(GateFailedError, match="gate 'statements <= 10' failed for tuned: 11"):
        raise_for_gates(build_report(folder, [*passed, gate_of("statements <= 10")]))
    with pytest.raises(UndecidedError, match="gate 'pss_bytes <= 1' inconclusive for tuned: not measured"):
        raise_for_gates(build_report(folder, [*passed, gate_of("pss_bytes <= 1")]))


def test_a_variant_without_any_figure_passes_no_gate(folder: Path) -> None:
    """It is inconclusive for the one that was not measured, and not left out."""
    head = RunHead.load(folder / "run.json")
    replace(head, command="compare", variants=["naive", "tuned", "lost"]).save(folder / "run.json")

    checks = build_report(folder, [gate_of("statements <= 18")]).checks

    assert [(each.variant, each.outcome) for each in checks[1:]] == [("tuned", "passed"), ("lost", "inconclusive")]


def test_a_gate_holds_against_each_baseline_of_a_variant() -> None:
    """tuned is faster than one baseline and slower than the other: one check passes and one fails."""
    against = [
        comparison(baseline=base, variant="tuned", metric="cpu_s", ratio=ratio, low=ratio, high=ratio)
        for base, ratio in (("quick", 1.5), ("slow", 0.5))
    ]

    checks = judge_gates([gate_of("cpu_s <= 1x")], against, ["tuned"])

    assert [(each.outcome, each.measured.rpartition("; ")[2]) for each in checks] == [
        ("failed", "against quick"),
        ("passed", "against slow"),
    ]


def test_a_failed_gate_weighs_more_than_an_inconclusive_one(folder: Path) -> None:
    """Exit code 1, not 3."""
    with pytest.raises(GateFailedError):
        raise_for_gates(build_report(folder, [gate_of("pss_bytes <= 1"), gate_of("statements <= 10")]))


def test_junit_and_markdown(folder: Path) -> None:
    """A test for the responses and one per gate: passed, failed, skipped; the same in a table."""
    gates = parse_gates(["statements <= 18", "statements <= 10", "pss_bytes <= 1"])
    write_report(build_report(folder, gates))
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    summary = (folder / "summary.md").read_text()

    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    assert [case.get("name") for case in suite] == [
        "same responses",
        "statements <= 18",
        "statements <= 10",
        "pss_bytes <= 1",
    ]
    assert "| `statements <= 10` | tuned | **failed** | 11 |" in summary
    assert "| statements | 29 | 11 | −62 % | 0 % | less |" in summary
    assert summary.startswith("### tuned is faster than naive: −68")


def test_differing_responses_are_a_failed_test(tmp_path: Path) -> None:
    """No speed in either file."""
    run = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), equal=False, difference="one is missing"))
    write_report(build_report(run, [gate_of("cpu_s <= 1.03x")]))
    suite = ElementTree.parse(run / "junit.xml").getroot()
    failure = suite.find("testcase/failure")

    assert failure is not None
    assert failure.get("message") == "one is missing"
    assert "server CPU" not in (run / "summary.md").read_text()


def test_a_run_that_compared_nothing_is_an_error_and_no_failed_test(tmp_path: Path) -> None:
    """What kept the responses from being compared, such as a package that cannot be installed, is no difference."""
    run = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), equal=None))
    write_report(build_report(run, []))
    suite = ElementTree.parse(run / "junit.xml").getroot()

    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["1", "0", "1", "0"]
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == "no response was compared"
