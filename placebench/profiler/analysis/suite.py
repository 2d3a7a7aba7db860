"""The SQL of a test suite: the statements of each test, slow and repeated ones, and changes since a baseline.

The main classes are `ProfiledTest`, `SuiteProfile` (all tests) and `SuiteBaseline` (the counts of an earlier run).
A profiled test is plain data, so that a worker process can send it to the controller.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self, TypedDict

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.analysis.findings import find
from placebench.profiler.model.files import with_slashes, write_whole
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Caller, Statement

_KINDS = {"n+1": "n_plus_one", "duplicate": "duplicates"}
_ORIGINS = ("application", "library", "tests")
"""The owners of code that runs statements: it lies below the suite's root, is installed, or is part of the tests."""

_MAX_SQL_LENGTH = 1000
_TEST_CODE = re.compile(r"(?:.*/)?(?:tests?/.*|conftest\.py|test_[^/]*\.py|[^/]*_test\.py)\Z")


@dataclass(frozen=True, slots=True)
class StatementUse:
    """All executions of one fingerprint in one test. places: the lines that ran it, the most frequent first."""

    fingerprint: str
    sql: str
    calls: int
    elapsed_s: float
    longest_s: float
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuiteFinding:
    """An N+1 or duplicates at one line.

    count: executions concerned. origin: owner of the line, one of `_ORIGINS`.
    parents: the rows that an N+1 runs over, as text; empty if they are not known.
    """

    kind: str
    count: int
    sql: str
    place: str
    origin: str
    advice: str
    parents: str = ""


@dataclass(frozen=True, slots=True)
class ProfiledTest:
    """The SQL of one test without its fixtures.

    name: pytest's node id. has_passed: False for a test that failed, whose statements may be incomplete.
    unknown: why its counts are not known; empty if they are known.
    """

    name: str
    elapsed_s: float = 0.0
    statements: tuple[StatementUse, ...] = ()
    findings: tuple[SuiteFinding, ...] = ()
    has_passed: bool = True
    unknown: str = ""

    @property
    def statement_count(self) -> int:
        """The number of executions of all statements."""
        return sum(use.calls for use in self.statements)

    @property
    def sql_s(self) -> float:
        """The seconds that all statements took."""
        return sum(use.elapsed_s for use in self.statements)

    @property
    def counts(self) -> "SqlCounts":
        """The counts that a baseline keeps."""
        found = dict.fromkeys(_KINDS.values(), 0)
        for finding in self.findings:
            found[_KINDS[finding.kind]] += 1 if finding.kind == "n+1" else finding.count
        return SqlCounts({use.fingerprint: use.calls for use in self.statements}, **found)

    @classmethod
    def of(cls, name: str, recording: RecordingData, root: Path) -> Self:
        """Return the test of a recording; files below *root* are named relative to it."""
        unknown = ""
        if recording.sql_s is None:
            unknown = "; ".join(recording.notes) or "nothing was measured"
        elif recording.gaps:
            unknown = "; ".join(recording.gaps)
        elif recording.dropped:
            unknown = f"{units.numbered(recording.dropped, 'statement')} beyond the limit of a recording"
        by_fingerprint: dict[str, list[Statement]] = {}
        for statement in recording.statements:
            by_fingerprint.setdefault(statement.fingerprint, []).append(statement)
        uses = (_use(statements, root) for statements in by_fingerprint.values())
        findings = []
        for found in find(recording):
            if found.kind in _KINDS:
                place = "" if found.caller is None else _place(found.caller, root)
                inside = "" if found.caller is None else found.caller.file.removeprefix(f"{root.as_posix()}/")
                origin = "tests" if _TEST_CODE.match(inside) else "application"
                if found.caller is None or inside == found.caller.file or "site-packages/" in inside:
                    origin = "library"
                sql = _shown(found.sql or "")
                parents = "" if found.parents is None else found.parents.shown(lambda caller: _place(caller, root))
                findings.append(SuiteFinding(found.kind, found.count, sql, place, origin, found.advice, parents))
        return cls(name, recording.elapsed_s, tuple(uses), tuple(findings), unknown=unknown)

    def to_text(self) -> str:
        """Return the test as one line of ASCII JSON, which a worker process sends to the controller."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str, *, has_passed: bool) -> Self:
        """Return the test that `to_text` wrote, with its outcome *has_passed*."""
        from placebench.decoding import check

        test: Self = check({**json.loads(text), "has_passed": has_passed}, cls, "a profiled test", error=ProfilerError)
        return test


@dataclass(frozen=True, slots=True)
class SqlCounts:
    """The counts of one test in a baseline. statements: executions by fingerprint. n_plus_one: lines with an N+1."""

    statements: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    n_plus_one: int = 0

    @property
    def total(self) -> int:
        """The number of executions of all statements."""
        return sum(self.statements.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain data without counts of 0."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class SqlCountChange:
    """A test whose counts differ from those of the baseline."""

    test: ProfiledTest
    before: SqlCounts
    after: SqlCounts

    @property
    def figures(self) -> tuple[tuple[str, int, int], ...]:
        """The name of each count, with its value before and after."""
        before, after = self.before, self.after
        return (
            ("statements", before.total, after.total),
            ("duplicates", before.duplicates, after.duplicates),
            ("n+1", before.n_plus_one, after.n_plus_one),
        )

    @property
    def is_regression(self) -> bool:
        """Whether the test runs more statements, or has more duplicates or N+1 lines than before."""
        return any(after > before for _, before, after in self.figures)

    @property
    def added(self) -> list[tuple[int, StatementUse]]:
        """Pairs of the number of added executions and the statement, the largest number first."""
        more = [(use.calls - self.before.statements.get(use.fingerprint, 0), use) for use in self.test.statements]
        return sorted((each for each in more if each[0] > 0), key=lambda each: each[0], reverse=True)

    @property
    def counts_text(self) -> str:
        """The counts that differ: "14 statements (3 in the baseline), 1 n+1 (0)"."""
        shown: list[str] = []
        for label, before, after in self.figures:
            if before != after:
                shown.append(f"{after} {label} ({before}{'' if shown else ' in the baseline'})")
        return ", ".join(shown) or "the same counts of other statements"

    def __str__(self) -> str:
        """Return one line: the test, its counts, and the statement with the most added executions."""
        line = f"{self.test.name}: {self.counts_text}"
        if not self.added:
            return line
        number, use = self.added[0]
        place = f" at {use.places[0]}" if use.places else ""
        others = f" and {len(self.added) - 1} more" if len(self.added) > 1 else ""
        return f"{line}; +{number} × {shortened(use.sql, 100)}{place}{others}"


@dataclass(frozen=True, slots=True)
class RepeatedFinding:
    """One finding at one line, in all tests that have it. most: the count in the first test, which is the highest."""

    finding: SuiteFinding
    most: int
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankedStatement:
    """A statement at a line, in the test where it ranks highest. other_tests: the number of other tests that run it."""

    use: StatementUse
    test: str
    other_tests: int


@dataclass(slots=True)
class SuiteProfile:
    """All tests that were profiled, by name; a test that ran again replaces its first run."""

    tests: dict[str, ProfiledTest] = field(default_factory=dict)

    def add(self, test: ProfiledTest) -> None:
        """Add one test, in place of an earlier run of it."""
        self.tests[test.name] = test

    @property
    def with_sql(self) -> list[ProfiledTest]:
        """The tests that ran any SQL, most statements first."""
        tests = [test for test in self.tests.values() if test.statements]
        return sorted(tests, key=lambda test: (-test.statement_count, test.name))

    @property
    def unknown(self) -> list[ProfiledTest]:
        """The tests whose counts are not known."""
        return [test for test in self.tests.values() if test.unknown]

    def slowest(self, limit: int) -> list[RankedStatement]:
        """Return the statements with the longest executions, each once with the test of its longest one."""
        return self._ranked(limit, lambda use: use.longest_s)

    def most_repeated(self, limit: int) -> list[RankedStatement]:
        """Return the statements that ran most often in a test, and more than once, each with that test."""
        return self._ranked(limit, lambda use: use.calls, above=1)

    def _ranked(self, limit: int, key: Callable[[StatementUse], float], *, above: float = 0) -> list[RankedStatement]:
        """Return at most *limit* statements with the highest *key*, each statement at a line once."""
        found: dict[tuple[str, tuple[str, ...]], list[tuple[StatementUse, str]]] = {}
        for test in self.tests.values():
            for use in test.statements:
                if key(use) > above:
                    found.setdefault((use.fingerprint, use.places[:1]), []).append((use, test.name))
        highest = [(max(uses, key=lambda each: key(each[0])), len(uses)) for uses in found.values()]
        highest.sort(key=lambda each: key(each[0][0]), reverse=True)
        return [RankedStatement(use, test, tests - 1) for (use, test), tests in highest[:limit]]

    def findings(self) -> list[RepeatedFinding]:
        """Return each finding once, with its tests: the application's lines first, N+1 before duplicates."""
        found: dict[tuple[str, str, str], list[tuple[SuiteFinding, str]]] = {}
        for test in self.tests.values():
            for each in test.findings:
                found.setdefault((each.kind, each.place, each.sql), []).append((each, test.name))
        repeated = []
        for everywhere in found.values():
            everywhere.sort(key=lambda each: each[0].count, reverse=True)
            first = everywhere[0][0]
            repeated.append(RepeatedFinding(first, first.count, tuple(name for _, name in everywhere)))
        return sorted(
            repeated, key=lambda each: (_ORIGINS.index(each.finding.origin), each.finding.kind != "n+1", -each.most)
        )


class _BaselineFile(TypedDict):
    format_version: Literal[1]
    tests: dict[str, SqlCounts | None]


@dataclass(frozen=True, slots=True)
class SuiteBaseline:
    """The counts of each test in an earlier run; None for a test that is excluded from comparison."""

    tests: Mapping[str, SqlCounts | None] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the baseline from a file. Raises ProfilerError if the file cannot be read or is no baseline."""
        from placebench.decoding import read_json

        try:
            document = read_json(path, _BaselineFile, error=ProfilerError)
        except ProfilerError as error:
            raise ProfilerError(f"{error}; --sql-update writes an SQL baseline") from error
        return cls(document["tests"])

    def save(self, path: Path) -> None:
        """Write the baseline as JSON with sorted keys: equal counts give equal files."""
        tests = {name: None if counts is None else counts.to_json() for name, counts in self.tests.items()}
        document = {"format_version": 1, "tests": tests}
        write_whole(path, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def updated(self, profile: SuiteProfile, root: Path) -> Self:
        """Return the baseline with new counts of the tests that passed; other entries stay if their file exists."""
        kept = {name: counts for name, counts in self.tests.items() if (root / name.partition("::")[0]).exists()}
        new = {test.name: test.counts for test in self._comparable(profile)}
        return type(self)({**kept, **new})

    def changes(self, profile: SuiteProfile) -> list[SqlCountChange]:
        """Return the tests whose counts have changed: regressions first, then by the size of the change."""
        changed = []
        for test in self._comparable(profile):
            before, after = self.tests.get(test.name), test.counts
            if before is not None and before != after:
                changed.append(SqlCountChange(test, before, after))
        return sorted(
            changed,
            key=lambda change: (not change.is_regression, -abs(change.after.total - change.before.total)),
        )

    def new_tests(self, profile: SuiteProfile) -> list[ProfiledTest]:
        """Return the tests that are not in the baseline."""
        return [test for test in self._comparable(profile) if test.name not in self.tests]

    def _comparable(self, profile: SuiteProfile) -> list[ProfiledTest]:
        """Return the tests that passed, whose counts are known, and that the baseline does not exclude by null."""
        return [
            test
            for test in profile.tests.values()
            if test.has_passed and not test.unknown and self.tests.get(test.name, True) is not None
        ]


def _use(statements: list[Statement], root: Path) -> StatementUse:
    """Return the use of one fingerprint, with the five lines that ran it most often."""
    counts = Counter(statement.caller for statement in statements if statement.caller is not None)
    return StatementUse(
        fingerprint=statements[0].fingerprint,
        sql=_shown(statements[0].sql),
        calls=len(statements),
        elapsed_s=sum(each.elapsed_s for each in statements),
        longest_s=max(each.elapsed_s for each in statements),
        places=tuple(_place(caller, root) for caller, _ in counts.most_common(5)),
    )


def _shown(sql: str) -> str:
    """Return the statement on one line."""
    return shortened(sql, _MAX_SQL_LENGTH)


def _place(caller: Caller, root: Path) -> str:
    """Return a call site as text, with its file named by `_shown_file`."""
    return f"{_shown_file(caller.file, root)}:{caller.line} {caller.function}"


@lru_cache(maxsize=1024)
def _shown_file(name: str, root: Path) -> str:
    """Return a file relative to the root of the suite, or to the folder that it is imported from."""
    for folder in (root.as_posix(), *sorted(map(with_slashes, filter(None, sys.path)), key=len, reverse=True)):
        inside = name.removeprefix(folder.rstrip("/") + "/")
        if inside != name and "site-packages/" not in inside:
            return inside
    return name
