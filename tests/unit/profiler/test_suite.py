"""What a suite's profile ranks, and what a change from the baseline is."""

from pathlib import Path

import pytest

from placebench.errors import ProfilerError
from placebench.profiler import Caller, Recording, Statement
from placebench.profiler.analysis.suite import ProfiledTest, SqlCounts, SuiteBaseline, SuiteProfile
from placebench.profiler.output.suite import SuiteReport

ROOT = Path("/suite")


def profiled(name: str, calls: int, *, file: str = "/suite/shop.py", **recorded: object) -> ProfiledTest:
    """A test that ran one statement so many times, with other values each."""
    statement = Statement("select ?", "f", 0.0, caller=Caller(file, 7, "view"), execute_s=0.001 * calls)
    recording = Recording(name, "full", statements=[statement] * calls, sql_s=0.0)
    for field, value in recorded.items():
        setattr(recording, field, value)
    return ProfiledTest.of(name, recording, ROOT)


def suite(*tests: ProfiledTest) -> SuiteProfile:
    """The profile of these tests."""
    profile = SuiteProfile()
    for test in tests:
        profile.add(test)
    return profile


def test_one_test_is_counted_in_the_singular() -> None:
    """And one statement."""
    headlines = [SuiteReport(suite(*(profiled(name, 1) for name in names))).headline for names in ("a", "ab")]

    assert headlines == [
        "1 test, 1 with SQL: 1 statement in 1.00 ms",
        "2 tests, 2 with SQL: 2 statements in 2.00 ms",
    ]


def test_a_statement_at_a_line_is_ranked_once_with_its_worst_test() -> None:
    """And with how many other tests have it; what ran once is not repeated."""
    profile = suite(profiled("a", 2), profiled("b", 6), profiled("c", 1))

    repeated = profile.most_repeated(5)

    assert [(each.test, each.use.calls, each.other_tests) for each in repeated] == [("b", 6, 1)]
    assert [(each.test, each.other_tests) for each in profile.slowest(5)] == [("b", 2)]


def test_findings_of_the_application_come_before_those_of_libraries_and_tests() -> None:
    """A folder of packages below the root is no application."""
    profile = suite(
        profiled("a", 9, file="/suite/tests/helpers.py"),
        profiled("b", 8, file="/suite/.venv/lib/site-packages/lib.py"),
        profiled("c", 7, file="/elsewhere/lib.py"),
        profiled("d", 6),
    )

    found = [(each.finding.origin, each.most, each.finding.place) for each in profile.findings()]

    assert found == [
        ("application", 6, "shop.py:7 view"),
        ("library", 8, "/suite/.venv/lib/site-packages/lib.py:7 view"),
        ("library", 7, "/elsewhere/lib.py:7 view"),
        ("tests", 9, "tests/helpers.py:7 view"),
    ]


def test_a_regression_is_more_statements_duplicates_or_n_plus_one_lines() -> None:
    """Fewer statements, or as many others, are changes and no regressions; the greatest regression comes first."""
    profile = suite(*(profiled(name, 5) for name in ("more", "most", "fewer", "others", "new_n_plus_one", "same")))
    baseline = SuiteBaseline(
        {
            "more": SqlCounts({"f": 4}),
            "most": SqlCounts({"f": 1}),
            "fewer": SqlCounts({"f": 6}, n_plus_one=1),
            "others": SqlCounts({"g": 5}, n_plus_one=1),
            "new_n_plus_one": SqlCounts({"f": 5}),
            "same": SqlCounts({"f": 5}, n_plus_one=1),
        }
    )

    changes = baseline.changes(profile)

    assert [(change.test.name, change.is_regression) for change in changes] == [
        ("most", True),
        ("more", True),
        ("new_n_plus_one", True),
        ("fewer", False),
        ("others", False),
    ]
    assert str(changes[1]) == "more: 5 statements (4 in the baseline), 1 n+1 (0); +1 × select ? at shop.py:7 view"


@pytest.mark.parametrize("recorded", [{"sql_s": None}, {"dropped": 1}, {"missed": 1}, {"failed_hooks": ("x",)}])
def test_a_test_whose_counts_are_not_known_is_not_compared(recorded: dict[str, object]) -> None:
    """It is named, and an update keeps what the baseline had."""
    test = profiled("a", 9, **recorded)
    baseline = SuiteBaseline({"a": SqlCounts({"f": 1})})

    assert test.unknown
    assert baseline.changes(suite(test)) == []


def test_a_profiled_test_and_a_baseline_come_back_as_they_were(tmp_path: Path) -> None:
    """From the line of a worker, and from the file."""
    test = profiled("a", 6)
    baseline = SuiteBaseline({"a": test.counts, "b": None})
    baseline.save(tmp_path / "sql.json")

    assert ProfiledTest.from_text(test.to_text(), has_passed=True) == test
    assert SuiteBaseline.load(tmp_path / "sql.json") == baseline


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"tests": {}}', '{"format_version": 2, "tests": {}}', '{"format_version": 1, "tests": {"a": 3}}'],
)
def test_a_file_that_is_no_baseline_is_an_error_of_the_user(text: str, tmp_path: Path) -> None:
    """It is named."""
    path = tmp_path / "sql.json"
    path.write_text(text)

    with pytest.raises(ProfilerError, match=r"sql\.json cannot be read as an SQL baseline"):
        SuiteBaseline.load(path)
