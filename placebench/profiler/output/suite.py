"""The SQL of a test suite as text for a terminal, as Markdown and as one HTML page: `SuiteReport`.

The Markdown is for a pull request and for GitHub's step summary.
"""

from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from placebench import units
from placebench.page import environment, shell
from placebench.plain_text import markdown_code as code
from placebench.profiler.analysis.suite import (
    ProfiledTest,
    RankedStatement,
    RepeatedFinding,
    SqlCountChange,
    SuiteProfile,
)
from placebench.profiler.model.files import write_whole
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.output.markdown import table

_MARKER = "<!-- placebench: pytest --sql -->"
"""First line of the Markdown, by which a bot finds its own comment again."""

_TEMPLATES = Path(__file__).parent / "templates"
_MAX_SQL_LENGTH = 100
_MAX_ROWS = 50
_MAX_TESTS = 500
_MAX_USES = 20


@dataclass(frozen=True)
class SuiteReport:
    """The report of one run of a suite. baseline: the name of its file, or None. limit: lines per list."""

    profile: SuiteProfile
    baseline: str | None = None
    changes: list[SqlCountChange] = field(default_factory=list)
    new_tests: list[ProfiledTest] = field(default_factory=list)
    limit: int = 5

    @property
    def regressions(self) -> list[SqlCountChange]:
        """The tests that run more SQL than in the baseline."""
        return [change for change in self.changes if change.is_regression]

    @property
    def headline(self) -> str:
        """One line with the numbers of tests and statements, and the time of the statements."""
        tests = self.profile.with_sql
        statements, seconds = sum(test.statement_count for test in tests), sum(test.sql_s for test in tests)
        return (
            f"{units.numbered(len(self.profile.tests), 'test')}, {units.count(len(tests))} with SQL: "
            f"{units.numbered(statements, 'statement')} in {units.duration(seconds)}"
        )

    @property
    def baseline_line(self) -> str:
        """One line that says how many tests differ from the baseline."""
        worse = len(self.regressions)
        better = sum(change.after.total < change.before.total for change in self.changes if not change.is_regression)
        others = len(self.changes) - worse - better
        return (
            f"Compared with {self.baseline}: regressions {worse}, tests with fewer statements {better}, "
            f"with other statements {others}, new tests {len(self.new_tests)}"
        )

    def to_lines(self) -> list[str]:
        """Return the report as lines for a terminal."""
        lines = [self.headline]
        slowest = [
            [f"{units.duration(each.use.longest_s):>10}  {shortened(each.use.sql, _MAX_SQL_LENGTH)}", *_where(each)]
            for each in self.profile.slowest(self.limit)
        ]
        repeated = []
        for each in self.profile.most_repeated(self.limit):
            times = f"{each.use.calls:>6} ×  {units.duration(each.use.elapsed_s):>8}"
            repeated.append([f"{times}  {shortened(each.use.sql, _MAX_SQL_LENGTH)}", *_where(each)])
        lines += [*_section("slowest statements", slowest), *_section("most repeated statements", repeated)]
        lines += self._finding_lines()
        if unknown := self.profile.unknown:
            tests = units.numbered(len(unknown), "test")
            lines.append(f"counts not known for {tests}, such as {unknown[0].name}: {unknown[0].unknown}")
        if self.baseline is not None:
            lines.append(self.baseline_line)
        return lines

    def _finding_lines(self) -> list[str]:
        """Return the findings of the application's lines, and the number of those in the tests themselves."""
        findings = self.profile.findings()
        own = [each for each in findings if each.finding.origin != "tests"]
        lines = _section("n+1 and duplicates", [_finding_lines(each) for each in own[: self.limit]])
        if len(own) > self.limit:
            lines.append(f"  and {len(own) - self.limit} more: see the page")
        if len(findings) > len(own):
            repeating = units.numbered(len(findings) - len(own), "line")
            lines.append(f"  statements repeated by {repeating} of the tests' own code: see the page")
        return lines

    def to_markdown(self) -> str:
        """Return the change per test, the findings and the most repeated statements as Markdown."""
        parts = [_MARKER, "### SQL of the test suite", self.headline + "."]
        if self.baseline is not None:
            parts += [self.baseline_line + ".", *_changes_table(self.changes)]
        own = [each for each in self.profile.findings() if each.finding.origin != "tests"][:_MAX_ROWS]
        rows = []
        for each in own:
            tests = f"{code(each.tests[0])}{_others(len(each.tests) - 1)}"
            found = each.finding
            rows.append((found.kind, f"{each.most}", code(found.place), _sql(found.sql), tests))
        parts += table(("finding", "most in a test", "line", "statement", "tests"), rows)
        parts += table(
            ("calls", "time", "statement", "test"),
            [
                (f"{each.use.calls}", units.duration(each.use.elapsed_s), _sql(each.use.sql), code(each.test))
                for each in self.profile.most_repeated(self.limit)
            ],
        )
        return "\n\n".join(parts) + "\n"

    def write_page(self, path: Path) -> None:
        """Write the report as one HTML file that a browser opens offline; it has no script and no outside request."""
        tests = self.profile.with_sql
        body = (
            environment(_TEMPLATES)
            .get_template("suite.html")
            .render(
                report=self,
                slowest=self.profile.slowest(4 * self.limit),
                repeated=self.profile.most_repeated(4 * self.limit),
                findings=self.profile.findings(),
                tests=tests[:_MAX_TESTS],
                left_out=len(tests) - len(tests[:_MAX_TESTS]),
                most_uses=_MAX_USES,
            )
        )
        write_whole(path, shell("SQL of the test suite", Markup(body), description=self.headline))


def _section(title: str, entries: list[list[str]]) -> list[str]:
    """Return the lines of a title and its entries; empty if there are no entries."""
    lines = [f"  {line}" for entry in entries for line in entry]
    return [title, *lines] if lines else []


def _where(each: RankedStatement) -> list[str]:
    return [f"            {line}" for line in (*each.use.places[:1], f"{each.test}{_others(each.other_tests)}")]


def _others(number: int) -> str:
    return f" and {units.numbered(number, 'other')}" if number else ""


def _finding_lines(each: RepeatedFinding) -> list[str]:
    place = each.finding.place or "line not known"
    return [
        f"{each.finding.kind}: {place}, {each.most} × in {each.tests[0]}{_others(len(each.tests) - 1)}",
        f"    {shortened(each.finding.sql, _MAX_SQL_LENGTH)}",
        *([f"    parents: {each.finding.parents}"] if each.finding.parents else []),
        f"    → {each.finding.advice}",
    ]


def _changes_table(changes: list[SqlCountChange]) -> list[str]:
    rows = [
        (
            f"{'❌ ' if change.is_regression else ''}{code(change.test.name)}",
            *(
                f"{after}" if before == after else f"{before} → {after} ({after - before:+d})"
                for _, before, after in change.figures
            ),
            "<br>".join(
                (
                    *(f"+{number} × {_sql(use.sql)}" for number, use in change.added[:3]),
                    *(f"−{number} × {_sql(text)}" for number, text in change.removed[:3]),
                )
            ),
        )
        for change in changes[:_MAX_ROWS]
    ]
    parts = table(("test", "statements", "duplicates", "n+1", "added and removed"), rows)
    if len(changes) > _MAX_ROWS:
        parts.append(f"And {units.numbered(len(changes) - _MAX_ROWS, 'more test')}.")
    return parts


def _sql(sql: str) -> str:
    return code(shortened(sql, _MAX_SQL_LENGTH))
