"""The SQL of a test suite: the statements of each test, slow and repeated ones, and changes since a baseline.

The main classes are `ProfiledTest`, `SuiteProfile` (all tests) and `SuiteBaseline` (the counts of an earlier run).
A profiled test is plain data, so that a worker process can send it to the controller.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, Self, TypedDict

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
_MAX_LINES = 20
_TEST_CODE = re.compile(r"(?:.*/)?(?:tests?/.*|conftest\.py|test_[^/]*\.py|[^/]*_test\.py)\Z")


@dataclass(frozen=True, slots=True)
class StatementUse:
    """All executions of one fingerprint in one test.

    places: the lines that ran it, the most frequent first. cache: the function that keeps its result, with its line;
    empty if none is known. summary: its operations and tables.
    """

    fingerprint: str
    sql: str
    calls: int
    elapsed_s: float
    longest_s: float
    places: tuple[str, ...]
    cache: str = ""
    summary: str = ""


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
        found: dict[str, Any] = dict.fromkeys(_KINDS.values(), 0)
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
    def from_text(cls, text: str, *, has_passed: bool | None = None) -> Self:
        """Return the test that `to_text` wrote; *has_passed* takes the place of its outcome."""
        from placebench.decoding import check

        outcome = {} if has_passed is None else {"has_passed": has_passed}
        plain = {**json.loads(text), **outcome}
        test: Self = check(plain, cls, "a profiled test", error=ProfilerError)
        return test


class CountRange(NamedTuple):
    """The counts of one statement that runs of a suite have had, and the reason why they differ."""

    low: int
    high: int
    reason: str

    def __str__(self) -> str:
        return f"{_range_text(self.low, self.high)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SqlCounts:
    """The counts of one test in a baseline.

    statements: executions by fingerprint, the highest of a range. n_plus_one: lines with an N+1.
    ranges: what differs between runs, by fingerprint, and by "duplicates" and "n_plus_one".
    """

    statements: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    n_plus_one: int = 0
    ranges: dict[str, CountRange] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of executions of all statements, the highest that is known."""
        return sum(self.statements.values())

    @property
    def lowest_total(self) -> int:
        """The number of executions of all statements if each runs as rarely as it may."""
        lows = {name: each.low for name, each in self.ranges.items()}
        return sum(lows.get(name, count) for name, count in self.statements.items())

    def accepts(self, after: "SqlCounts") -> bool:
        """Return whether these counts are those of the baseline, within its ranges."""
        names = self.statements.keys() | after.statements.keys()
        pairs = [(name, self.statements.get(name, 0), after.statements.get(name, 0)) for name in names]
        pairs += [(name, getattr(self, name), getattr(after, name)) for name in _KINDS.values()]
        return all(
            self.ranges[name].low <= new <= self.ranges[name].high if name in self.ranges else new == old
            for name, old, new in pairs
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data without counts of 0."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class SqlCountChange:
    """A test whose counts differ from those of the baseline.

    texts: what the baseline tells of the statements that did not run.
    """

    test: ProfiledTest
    before: SqlCounts
    after: SqlCounts
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[tuple[str, int, int], ...]:
        """The name of each count, with its highest value before and its value after."""
        before, after = self.before, self.after
        return (
            ("statements", before.total, after.total),
            ("duplicates", before.duplicates, after.duplicates),
            ("n+1", before.n_plus_one, after.n_plus_one),
        )

    @property
    def is_regression(self) -> bool:
        """Whether the test runs more statements, or has more duplicates or N+1 lines than before.

        Within its range, a statement that varies is ignored: few executions of it do not make up for more of others.
        """
        before, after = self.before, self.after
        more = 0
        for name in before.statements.keys() | after.statements.keys():
            difference = after.statements.get(name, 0) - before.statements.get(name, 0)
            if name not in before.ranges:
                more += difference
            elif difference > 0:
                return True
        return more > 0 or after.duplicates > before.duplicates or after.n_plus_one > before.n_plus_one

    @property
    def removed(self) -> list[tuple[int, str]]:
        """Pairs of the number of executions that are gone and a text of the statement, the largest number first.

        A statement with a range counts only what is below it.
        """
        sql = {use.fingerprint: _used_at(use) for use in self.test.statements}
        less = []
        for name, count in self.before.statements.items():
            low = self.before.ranges[name].low if name in self.before.ranges else count
            text = sql.get(name) or self.texts.get(name) or f"statement {name}"
            less.append((low - self.after.statements.get(name, 0), text))
        return sorted((each for each in less if each[0] > 0), key=lambda each: -each[0])

    def to_lines(self) -> list[str]:
        """Return one line per statement that came or went, with its place; at most 20."""
        lines = [f"+{number} × {_used_at(use)}" for number, use in self.added]
        lines += [f"−{number} × {text}" for number, text in self.removed]
        left_out = len(lines) - _MAX_LINES
        return lines if left_out <= 0 else [*lines[:_MAX_LINES], f"and {left_out} more"]

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
                low = self.before.lowest_total if label == "statements" else before
                shown.append(f"{after} {label} ({_range_text(low, before)}{'' if shown else ' in the baseline'})")
        return ", ".join(shown) or "the same counts of other statements"

    def __str__(self) -> str:
        """Return one line: the test, its counts, and the statement with the most added executions."""
        line = f"{self.test.name}: {self.counts_text}"
        if not self.added:
            return line
        number, use = self.added[0]
        others = f" and {len(self.added) - 1} more" if len(self.added) > 1 else ""
        return f"{line}; +{number} × {_used_at(use)}{others}"


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
    texts: NotRequired[dict[str, str]]


@dataclass(frozen=True, slots=True)
class SuiteBaseline:
    """The counts of each test in earlier runs; None for a test that is excluded from comparison.

    texts: operations, tables and place of statements by fingerprint, for those that do not run any more.
    """

    tests: Mapping[str, SqlCounts | None] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the baseline from a file. Raises ProfilerError if the file cannot be read or is not a baseline."""
        from placebench.decoding import read_json

        try:
            document = read_json(path, _BaselineFile, error=ProfilerError)
        except ProfilerError as error:
            raise ProfilerError(f"{error}; --sql-update writes an SQL baseline") from error
        return cls(document["tests"], document.get("texts", {}))

    def save(self, path: Path) -> None:
        """Write the baseline as JSON with sorted keys: equal counts give equal files."""
        tests = {name: None if counts is None else counts.to_json() for name, counts in self.tests.items()}
        document: dict[str, Any] = {"format_version": 1, "tests": tests}
        if self.texts:
            document["texts"] = dict(self.texts)
        write_whole(path, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def updated(self, profiles: Sequence[SuiteProfile], root: Path) -> Self:
        """Return the baseline with new counts of the tests that passed; other entries stay if their file exists.

        profiles: runs of the suite. Several give ranges; one keeps the ranges that there are, and widens them.
        """
        kept = {name: counts for name, counts in self.tests.items() if (root / name.partition("::")[0]).exists()}
        runs: dict[str, list[ProfiledTest]] = {}
        for profile in profiles:
            for test in self._comparable(profile):
                runs.setdefault(test.name, []).append(test)
        new = {name: _counts_of(tests) for name, tests in runs.items()}
        if len(profiles) == 1:
            new = {name: _with_ranges(counts, self.tests.get(name)) for name, counts in new.items()}
        counted = {**kept, **new}
        names = {name for counts in counted.values() if counts is not None for name in counts.statements}
        told: dict[str, set[str]] = {}
        for use in (use for tests in runs.values() for test in tests for use in test.statements):
            # Without the line, which every change above it moves.
            place = re.sub(r":\d+ ", " ", use.places[0]) if use.places else ""
            told.setdefault(use.fingerprint, set()).add(f"{use.summary} at {place}" if place else use.summary)
        texts = {name: text for name, text in self.texts.items() if name in names}
        # In whatever order the tests ran, the file is the same.
        texts |= {name: min(each) for name, each in told.items() if texts.get(name) not in each}
        return type(self)(counted, texts)

    def changes(self, profile: SuiteProfile) -> list[SqlCountChange]:
        """Return the tests whose counts have changed: regressions first, then by the size of the change.

        What does not run in some runs of one test, such as the filling of a cache, may run in any other test instead.
        """
        shared: dict[str, CountRange] = {}
        for counts in self.tests.values():
            for name, each in counts.ranges.items() if counts is not None else ():
                if each.low == 0 and name not in _KINDS.values() and each.high >= shared.get(name, each).high:
                    shared[name] = each
        changed = []
        for test in self._comparable(profile):
            before, after = self.tests.get(test.name), test.counts
            if before is not None and (new := (after.statements.keys() - before.statements.keys()) & shared.keys()):
                own = {name: shared[name] for name in new}
                statements = before.statements | {name: each.high for name, each in own.items()}
                before = replace(before, statements=statements, ranges=before.ranges | own)
            if before is not None and not before.accepts(after):
                changed.append(SqlCountChange(test, before, after, self.texts))
        return sorted(
            changed, key=lambda change: (not change.is_regression, -abs(change.after.total - change.before.total))
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


def _counts_of(runs: Sequence[ProfiledTest]) -> SqlCounts:
    """Return the highest counts of one test in these runs, with a range for each count that differs."""
    counts = [test.counts for test in runs]
    uses = {use.fingerprint: use for test in runs for use in test.statements}
    statements, ranges = {}, {}
    for name, use in uses.items():
        each = [run.statements.get(name, 0) for run in counts]
        statements[name] = max(each)
        if min(each) < max(each):
            place = f" at {use.places[0]}" if use.places else ""
            reason = f"depends on the cache at {use.cache}" if use.cache else f"differs between runs{place}"
            ranges[name] = CountRange(min(each), max(each), reason)
    highest: dict[str, Any] = {}
    for name in _KINDS.values():
        each = [getattr(run, name) for run in counts]
        highest[name] = max(each)
        if min(each) < max(each):
            ranges[name] = CountRange(min(each), max(each), "differs between runs")
    return SqlCounts(statements, **highest, ranges=ranges)


def _with_ranges(new: SqlCounts, old: SqlCounts | None) -> SqlCounts:
    """Return the new counts with the ranges of old ones, widened where the new ones are outside."""
    ranges = {} if old is None else old.ranges
    statements, wider = dict(new.statements), {}
    highest: dict[str, Any] = {}
    for name, (low, high, reason) in ranges.items():
        is_kind = name in _KINDS.values()
        count = getattr(new, name) if is_kind else new.statements.get(name, 0)
        wider[name] = CountRange(min(low, count), max(high, count), reason)
        (highest if is_kind else statements)[name] = wider[name].high
    return replace(new, statements=statements, ranges=wider, **highest)


def _range_text(low: int, high: int) -> str:
    return f"{high}" if low == high else f"{low} or {high}" if high == low + 1 else f"{low} to {high}"


def _used_at(use: StatementUse) -> str:
    """Return the statement with the line that ran it most often."""
    return f"{shortened(use.sql, 100)}{f' at {use.places[0]}' if use.places else ''}"


@lru_cache(maxsize=1024)
def _cache_of(caller: Caller | None, root: Path) -> str:
    """Return the place of a function that keeps its results (functools, Django), empty for any other.

    It is looked up by its module and its name: what a module has there is the wrapper that keeps them.
    """
    if caller is None:
        return ""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == caller.file:
            found: Any = module
            for part in caller.function.split("."):
                found = vars(found).get(part) if hasattr(found, "__dict__") else None
            keeps = hasattr(found, "cache_info") or type(found).__name__ == "cached_property"
            return _place(caller, root) if keeps else ""
    return ""


def _use(statements: list[Statement], root: Path) -> StatementUse:
    """Return the use of one fingerprint, with the five lines that ran it most often."""
    first = statements[0]
    counts = Counter(statement.caller for statement in statements if statement.caller is not None)
    return StatementUse(
        fingerprint=statements[0].fingerprint,
        sql=_shown(statements[0].sql),
        calls=len(statements),
        elapsed_s=sum(each.elapsed_s for each in statements),
        longest_s=max(each.elapsed_s for each in statements),
        places=tuple(_place(caller, root) for caller, _ in counts.most_common(5)),
        cache=_cache_of(first.caller, root) or _cache_of(first.outer_caller, root),
        summary=first.summary,
    )


def _shown(sql: str) -> str:
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
