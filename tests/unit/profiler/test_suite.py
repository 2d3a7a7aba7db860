"""What a suite's profile ranks, and what a change from the baseline is."""

from dataclasses import replace
from pathlib import Path

import pytest

from placebench.errors import ProfilerError
from placebench.profiler import Caller, Recording, Statement
from placebench.profiler.analysis.suite import (
    CountRange,
    ProfiledTest,
    RankedStatement,
    SqlCountChange,
    SqlCounts,
    StatementUse,
    SuiteBaseline,
    SuiteFinding,
    SuiteProfile,
)
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
    """A folder of packages below the root is not an application; one whose name begins with a dot may be."""
    profile = suite(
        profiled("a", 9, file="/suite/tests/helpers.py"),
        profiled("b", 8, file="/suite/.venv/lib/site-packages/lib.py"),
        profiled("c", 7, file="/elsewhere/lib.py"),
        profiled("d", 6),
        profiled("e", 5, file="/suite/.scripts/shop.py"),
    )

    found = [(each.finding.origin, each.most, each.finding.place) for each in profile.findings()]

    assert found == [
        ("application", 6, "shop.py:7 view"),
        ("application", 5, ".scripts/shop.py:7 view"),
        ("library", 8, "/suite/.venv/lib/site-packages/lib.py:7 view"),
        ("library", 7, "/elsewhere/lib.py:7 view"),
        ("tests", 9, "tests/helpers.py:7 view"),
    ]
    assert {each.finding.sql for each in profile.findings()} == {"select ?"}


def test_a_regression_is_more_statements_duplicates_or_n_plus_one_lines() -> None:
    """Fewer statements, or as many others, are changes and no regressions; the greatest regression comes first."""
    profile = suite(*(profiled(name, 5) for name in ("more", "most", "fewer", "others", "new_n_plus_one", "same")))
    baseline = SuiteBaseline(
        {
            "more": SqlCounts({"f": 4}),
            "most": SqlCounts({"f": 1}),
            "fewer": SqlCounts({"f": 6}, duplicates=2, n_plus_one=1),
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


def use(fingerprint: str, calls: int, longest_s: float = 0.0, place: str = "shop.py:7 view") -> StatementUse:
    """So many executions of one statement at one line."""
    return StatementUse(fingerprint, f"select {fingerprint}", calls, calls * 0.5, longest_s, (place,) if place else ())


def test_a_test_sums_up_its_statements_and_findings() -> None:
    """Duplicates count by their executions, N+1 by their lines."""
    findings = (
        SuiteFinding("n+1", 7, "a", "x:1 f", "application", ""),
        SuiteFinding("duplicate", 2, "a", "x:1 f", "application", ""),
        SuiteFinding("duplicate", 3, "b", "x:2 f", "application", ""),
    )
    test = ProfiledTest("t", statements=(use("a", 2), use("b", 4)), findings=findings)

    assert (test.statement_count, test.sql_s, test.elapsed_s) == (6, 3.0, 0.0)
    assert test.counts == SqlCounts({"a": 2, "b": 4}, duplicates=5, n_plus_one=1)
    assert test.counts.to_json() == {"statements": {"a": 2, "b": 4}, "duplicates": 5, "n_plus_one": 1}
    assert SqlCounts({"a": 2}).to_json() == {"statements": {"a": 2}}


@pytest.mark.parametrize(
    ("uses", "before", "text"),
    [
        ([use("a", 3)], SqlCounts({"a": 1}), "t: 3 statements (1 in the baseline); +2 × select a at shop.py:7 view"),
        (
            [use("a", 3), use("b", 9, place=""), use("c", 2)],
            SqlCounts({"a": 1, "c": 2}),
            "t: 14 statements (3 in the baseline); +9 × select b and 1 more",
        ),
        ([use("x" * 99, 3, place="")], SqlCounts({}), f"t: 3 statements (0 in the baseline); +3 × select {'x' * 92}…"),
        (
            [replace(use("a", 3), places=("shop.py:9 f", "shop.py:7 view"))],
            SqlCounts({"a": 1}),
            "t: 3 statements (1 in the baseline); +2 × select a at shop.py:9 f",
        ),
        ([use("a", 3)], SqlCounts({"a": 4}), "t: 3 statements (4 in the baseline)"),
        (
            [use("a", 3)],
            SqlCounts({"b": 3}),
            "t: the same counts of other statements; +3 × select a at shop.py:7 view",
        ),
        (
            [use("a", 3)],
            SqlCounts({"a": 3}, duplicates=2, n_plus_one=1),
            "t: 0 duplicates (2 in the baseline), 0 n+1 (1)",
        ),
    ],
)
def test_what_changed_is_told_on_one_line(uses: list[StatementUse], before: SqlCounts, text: str) -> None:
    """The counts that differ, and the statement that was added most often."""
    test = ProfiledTest("t", statements=tuple(uses))

    assert str(SqlCountChange(test, before, test.counts)) == text


def test_statements_are_ranked_by_their_worst_test() -> None:
    """As many as were wanted, each by its first line; what ran once is not repeated, and took time nevertheless."""
    one = ProfiledTest("one", statements=(use("a", 2, 0.1), use("b", 5, 0.2), use("c", 1, 0.9)))
    two = ProfiledTest("two", statements=(use("a", 3, 0.05), use("b", 4, 0.3), use("d", 1, 0.0)))
    profile = suite(one, two)

    def ranked(found: list[RankedStatement]) -> list[tuple[str, str, int]]:
        return [(each.use.fingerprint, each.test, each.other_tests) for each in found]

    assert ranked(profile.most_repeated(9)) == [("b", "one", 1), ("a", "two", 1)]
    assert ranked(profile.most_repeated(1)) == [("b", "one", 1)]
    assert ranked(profile.slowest(9)) == [("c", "one", 0), ("b", "two", 1), ("a", "one", 1)]
    elsewhere = replace(one.statements[0], places=("shop.py:7 view", "other.py:1 f"))
    assert ranked(suite(one, ProfiledTest("three", statements=(elsewhere,))).slowest(9))[-1] == ("a", "one", 1)
    other_line = replace(one.statements[0], places=("other.py:1 f",))
    assert len(suite(one, ProfiledTest("three", statements=(other_line,))).slowest(9)) == 4
    few = [ProfiledTest("a few", statements=(use("a", 1),)), ProfiledTest("none"), profiled("b", 1, missed=1)]
    assert [test.name for test in suite(*few, two, one).with_sql] == ["one", "two", "a few", "b"]
    assert [test.name for test in suite(*few).unknown] == ["b"]


def test_findings_of_many_tests_are_one() -> None:
    """N+1 before duplicates, the highest count first; each with the tests that have it, the worst first."""
    lines = [("n+1", 5, "a"), ("duplicate", 8, "d"), ("n+1", 6, "c"), ("duplicate", 9, "b")]
    findings = tuple(SuiteFinding(kind, count, sql, "x:1 f", "application", "") for kind, count, sql in lines)
    worse = SuiteFinding("n+1", 7, "a", "x:1 f", "application", "")

    found = suite(ProfiledTest("one", findings=findings), ProfiledTest("two", findings=(worse,))).findings()

    assert [(each.finding.sql, each.most, each.tests) for each in found] == [
        ("a", 7, ("two", "one")),
        ("c", 6, ("one",)),
        ("b", 9, ("one",)),
        ("d", 8, ("one",)),
    ]


def test_a_statement_names_five_lines_the_most_frequent_first() -> None:
    """And the sum and the longest of its executions, and the first text."""
    often = [Statement("SELECT 1", "f", 0.0, caller=Caller("/suite/a.py", 9, "f"), execute_s=0.5)] * 2
    once = [
        Statement("select 1", "f", 0.0, caller=Caller("/suite/a.py", line, "f"), execute_s=0.1) for line in range(6)
    ]
    test = ProfiledTest.of("t", Recording("t", "full", statements=[*once, *often], sql_s=0.0, elapsed_s=3.0), ROOT)
    (found,) = test.statements

    assert found.places == ("a.py:9 f", "a.py:0 f", "a.py:1 f", "a.py:2 f", "a.py:3 f")
    assert (found.calls, found.elapsed_s, found.longest_s) == (8, pytest.approx(1.6), 0.5)
    assert found.sql == "select 1"
    assert (test.elapsed_s, test.unknown) == (3.0, "")


def test_a_statement_is_kept_up_to_a_thousand_characters() -> None:
    """On one line; a longer one is cut."""
    statements = [Statement("s" * length, f"{length}", 0.0, execute_s=0.1) for length in (1000, 1001)]

    test = ProfiledTest.of("t", Recording("t", "full", statements=statements, sql_s=0.0), ROOT)

    assert [use.sql for use in test.statements] == ["s" * 1000, "s" * 999 + "…"]


def test_a_file_elsewhere_is_named_from_the_longest_folder_that_python_found_it_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is installed below such a folder keeps its whole name."""
    monkeypatch.setattr("sys.path", ["", "/opt", "/opt/shop/", "/opt/shop/lib"])
    files = ["/opt/shop/lib/x.py", "/opt/shop/y.py", "/opt/z.py", "/op/z.py", "/opt/site-packages/z.py"]

    places = [profiled("t", 1, file=file).statements[0].places[0] for file in files]

    assert places == [f"{name}:7 view" for name in ("x.py", "y.py", "z.py", "/op/z.py", "/opt/site-packages/z.py")]


def test_an_update_keeps_what_was_not_run(tmp_path: Path) -> None:
    """Tests whose file is gone are dropped; one that failed, and one that is excluded by a null, stay as they were."""
    (tmp_path / "test_a.py").touch()
    old = SqlCounts({"f": 1})
    names = ["test_a.py::passed", "test_a.py::failed", "test_a.py::excluded", "gone.py::test"]
    baseline = SuiteBaseline(dict(zip(names, [old, old, None, old], strict=True)))
    profile = suite(
        profiled(names[0], 3),
        replace(profiled(names[1], 3), has_passed=False),
        profiled(names[2], 3),
        profiled("test_a.py::new", 2),
    )

    updated = baseline.updated([profile], tmp_path)

    assert [test.name for test in baseline.new_tests(profile)] == ["test_a.py::new"]
    assert [change.test.name for change in baseline.changes(profile)] == [names[0]]
    assert updated.tests == {
        names[0]: SqlCounts({"f": 3}),
        names[1]: old,
        names[2]: None,
        "test_a.py::new": SqlCounts({"f": 2}),
    }


@pytest.mark.parametrize("recorded", [{"sql_s": None}, {"dropped": 1}, {"missed": 1}, {"failed_hooks": ("x",)}])
def test_a_test_whose_counts_are_not_known_is_not_compared(recorded: dict[str, object]) -> None:
    """It is named, and an update keeps what the baseline had."""
    test = profiled("a", 9, **recorded)
    baseline = SuiteBaseline({"a": SqlCounts({"f": 1})})

    assert test.unknown
    assert baseline.changes(suite(test)) == []


def test_a_profiled_test_and_a_baseline_come_back_as_they_were(tmp_path: Path) -> None:
    """From the line of a worker, and from the file, whose format is 1 and whose names can be read."""
    test = profiled("a", 6)
    baseline = SuiteBaseline({"a": test.counts, "test_größe": None})
    baseline.save(tmp_path / "sql.json")
    saved = (tmp_path / "sql.json").read_text(encoding="utf-8")

    assert ProfiledTest.from_text(test.to_text(), has_passed=True) == test
    assert SuiteBaseline.load(tmp_path / "sql.json") == baseline
    assert ('"format_version": 1' in saved, '"test_größe": null' in saved) == (True, True)


def test_the_same_counts_are_the_same_file(tmp_path: Path) -> None:
    """Whatever order the tests ran in; each count is on a line of its own."""
    SuiteBaseline({"b": None, "a": SqlCounts({"g": 2, "f": 1}, duplicates=3)}).save(tmp_path / "sql.json")

    assert (tmp_path / "sql.json").read_text().splitlines() == [
        "{",
        ' "format_version": 1,',
        ' "tests": {',
        '  "a": {',
        '   "duplicates": 3,',
        '   "statements": {',
        '    "f": 1,',
        '    "g": 2',
        "   }",
        "  },",
        '  "b": null',
        " }",
        "}",
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"tests": {}}', '{"format_version": 1, "tests": {"a": 3}}'),
        *('{"format_version": 0, "tests": {}}', '{"format_version": 2, "tests": {}}'),
    ],
)
def test_a_file_that_is_no_baseline_is_an_error_of_the_user(text: str, tmp_path: Path) -> None:
    """The message names the file, and the option that writes one."""
    path = tmp_path / "sql.json"
    path.write_text(text)

    with pytest.raises(ProfilerError, match=r"sql\.json: .*--sql-update"):
        SuiteBaseline.load(path)


def test_a_range_accepts_what_is_inside_and_hides_nothing_else() -> None:
    """A cached statement may run or not; what comes beside it is a regression although the sum is no larger."""
    cached = SqlCounts({"f": 1, "g": 1}, ranges={"f": CountRange(0, 1, "depends on the cache at shop.py:3 rates")})
    test = ProfiledTest("t", statements=(StatementUse("g", "g", 2, 0.1, 0.1, ("x:1 f",)),))

    assert [cached.accepts(SqlCounts(each)) for each in ({"g": 1}, {"f": 1, "g": 1})] == [True, True]
    assert [cached.accepts(SqlCounts(each)) for each in ({"f": 2, "g": 1}, {"f": 1}, {"g": 2})] == [False] * 3
    change = SqlCountChange(test, cached, test.counts)
    assert change.is_regression
    assert change.to_lines() == ["+1 × g at x:1 f"]
    assert str(cached.ranges["f"]) == "0 or 1: depends on the cache at shop.py:3 rates"
    assert not SqlCountChange(profiled("t", 0), cached, SqlCounts({"f": 1})).is_regression


def test_what_one_test_runs_in_some_runs_may_run_in_another(tmp_path: Path) -> None:
    """A cache is filled by whichever test comes first; it is learned from the two that were first once."""
    first, second = suite(profiled("a", 1), profiled("b", 0)), suite(profiled("a", 0), profiled("b", 0))
    (tmp_path / "a").touch()

    learned = SuiteBaseline().updated([first, second], tmp_path)

    assert learned.tests["a"] == SqlCounts(
        {"f": 1}, ranges={"f": CountRange(0, 1, "differs between runs at shop.py:7 view")}
    )
    assert learned.texts == {"f": "select at shop.py view"}
    assert learned.changes(suite(profiled("a", 0), profiled("b", 1))) == []
    (change,) = learned.changes(suite(profiled("b", 2)))
    assert change.is_regression
    learned.save(tmp_path / "baseline.json")
    assert SuiteBaseline.load(tmp_path / "baseline.json") == learned


def test_an_update_keeps_ranges_and_widens_them(tmp_path: Path) -> None:
    """Its one run cannot tell what others do."""
    old = SuiteBaseline(
        {"a": SqlCounts({"f": 1}, ranges={"f": CountRange(0, 1, "why"), "duplicates": CountRange(1, 2, "")})}
    )

    updated = old.updated([suite(profiled("a", 3))], tmp_path).tests["a"]

    assert updated == SqlCounts({"f": 3}, 2, ranges={"f": CountRange(0, 3, "why"), "duplicates": CountRange(0, 2, "")})


def test_what_went_is_told_by_what_the_baseline_knows() -> None:
    """Its text, the fingerprint if it has none, and only what is below a range."""
    before = SqlCounts({"f": 2, "g": 1, "h": 4}, ranges={"h": CountRange(2, 4, "")})
    change = SqlCountChange(profiled("t", 1), before, SqlCounts({"f": 1, "h": 1}), {"g": "SELECT g"})

    assert change.to_lines() == ["−1 × select ? at shop.py:7 view", "−1 × SELECT g", "−1 × statement h"]
    assert change.counts_text == "2 statements (5 to 7 in the baseline)"
