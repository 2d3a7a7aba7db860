"""The profiler in a run of pytest: `SqlSession` records tests and checks budgets, `SuitePlugin` is `pytest --sql`.

Each test's SQL goes with its report, so that workers of pytest-xdist send it to the controller with the outcome.
Statements of every thread and task are recorded: a process runs one test at a time.
"""

import inspect
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.config.findpaths import determine_setup  # public in no version, and there in all

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.analysis.budget import METRICS, Budget
from placebench.profiler.analysis.suite import ProfiledTest, SuiteBaseline, SuiteProfile
from placebench.profiler.integrations.process_profiler import share_profiler
from placebench.profiler.output.suite import SuiteReport
from placebench.profiler.recording import Recording
from placebench.profiler.sql_profiler import SqlProfiler

_RECORDING: pytest.StashKey[Recording] = pytest.StashKey()
_ATTRIBUTE = "placebench_sql"
_MAX_RUNS = 20


class SqlSession:
    """Records tests, and blocks inside tests, on every engine of the process until `remove`."""

    def __init__(self) -> None:
        self._profiler = SqlProfiler(whole_process=True)
        share_profiler(self._profiler)

    @property
    def nothing_seen(self) -> str:
        """The message if no test ran a statement."""
        return self._profiler.nothing_seen

    def remove(self) -> None:
        """Remove the profiler's hooks."""
        self._profiler.remove()

    @contextmanager
    def record(self, name: str, limits: Mapping[str, int]) -> Iterator[Recording]:
        """Record the block, and fail the test if it broke its budget; an error in the block takes precedence."""
        unknown = set(limits) - set(METRICS)
        if unknown:
            raise pytest.UsageError(f"sql_budget knows no {', '.join(sorted(unknown))}: only {', '.join(METRICS)}")
        with self._profiler.record(name) as recording:
            yield recording
        broken = Budget.at_most(**limits).broken_by(recording) if limits else ""
        if broken:
            pytest.fail(f"SQL budget broken\n{broken}", pytrace=False)

    @contextmanager
    def record_test(self, item: pytest.Item, limits: Mapping[str, int]) -> Iterator[None]:
        """Record a whole test like `record`, and keep the recording for its report, however the test ends."""
        recording = None
        try:
            with self.record(item.name, limits) as recording:
                yield
        finally:
            if recording is not None:
                item.stash[_RECORDING] = recording


class SuitePlugin:
    """Collects the SQL of all tests, compares it with a baseline and reports it."""

    def __init__(self, config: pytest.Config, session: SqlSession) -> None:
        self._config = config
        self._session = session
        self._is_worker = hasattr(config, "workerinput")
        self._profile = SuiteProfile()
        self._report: SuiteReport | None = None
        self._notes: list[str] = []
        self._page = Path(config.getoption("sql_page") or "pytest-sql.html")
        self._markdown = _path(config, "sql_markdown")
        self._baseline_file = _path(config, "sql_baseline")
        self._learns: int = config.getoption("sql_learn")
        self._updates = bool(config.getoption("sql_update")) or self._learns > 0
        self._run_file = _path(config, "sql_run")
        self._baseline = SuiteBaseline() if self._is_worker else self._load_baseline()

    def _load_baseline(self) -> SuiteBaseline:
        """Load the baseline. Raises pytest.UsageError for wrong options and files, before the first test runs."""
        file = self._baseline_file
        if self._updates and file is None:
            option = "--sql-learn" if self._learns else "--sql-update"
            raise pytest.UsageError(f"{option} needs --sql-baseline FILE, the file to write")
        if self._learns and not 2 <= self._learns <= _MAX_RUNS:
            raise pytest.UsageError(f"--sql-learn {self._learns}: expected a number of runs from 2 to {_MAX_RUNS}")
        for written in (self._page, self._markdown, file):
            if written is not None and not written.absolute().parent.is_dir():
                raise pytest.UsageError(f"{written}: there is no folder {written.parent}; create it first")
            if written is not None and _moved_the_root(self._config, written):
                raise pytest.UsageError(
                    f"{written}: pytest took this file for tests, and {self._config.rootpath} for the root of the "
                    f"suite; write it with an equals sign, as --sql-baseline={written}"
                )
        if file is None or self._run_file is not None or (self._updates and not file.exists()):
            return SuiteBaseline()
        if not file.exists():
            raise pytest.UsageError(f"--sql-baseline {file}: there is no such file; --sql-update writes it")
        try:
            return SuiteBaseline.load(file)
        except ProfilerError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the tests in the order of this run of `--sql-learn`: reversed, or shuffled by its number."""
        order = self._config.getoption("sql_order")
        if order == 2:
            items.reverse()
        elif order > 2:
            random.Random(order).shuffle(items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the SQL of a test that has run into the report of the test."""
        report = yield
        recording = item.stash.get(_RECORDING, None)
        if call.when == "call" and recording is not None:
            del item.stash[_RECORDING]
            try:
                text = ProfiledTest.of(item.nodeid, recording, item.config.rootpath).to_text()
            except Exception as error:  # noqa: BLE001  whatever it is, it must not become the suite's
                text = ProfiledTest(item.nodeid, unknown=f"its recording cannot be read: {error!r}").to_text()
            setattr(report, _ATTRIBUTE, text)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the SQL of a test, of this process or of a worker."""
        text = getattr(report, _ATTRIBUTE, None)
        if text is not None and not self._is_worker:
            self._profile.add(ProfiledTest.from_text(text, has_passed=report.passed))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files, and exit with 1 if a test that passed runs more SQL than in the baseline."""
        if self._is_worker:
            return
        if self._run_file is not None:
            tests = (test.to_text() for test in self._profile.tests.values())
            self._run_file.write_text("".join(f"{line}\n" for line in tests), encoding="utf-8")
            return
        name, baseline = self._baseline_file, self._baseline
        self._report = SuiteReport(
            self._profile,
            baseline=None if name is None else str(name),
            changes=baseline.changes(self._profile),
            new_tests=[] if name is None else baseline.new_tests(self._profile),
            limit=max(0, self._config.getoption("sql_top")),
        )
        self._write_files(self._report)
        if not self._profile.tests:
            self._notes.append("no statement was seen: no test ran; those whose fixtures fail are not recorded")
        elif not self._profile.with_sql:
            self._notes.append(self._session.nothing_seen)
        if self._report.regressions and not self._updates:
            self._notes.append(
                f"after an intended change: --sql-update; where counts differ: --sql-learn 3, or null in {name}"
            )
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write_files(self, report: SuiteReport) -> None:
        """Write page, Markdown and baseline; a file that cannot be written is named, and the others are written."""
        markdown = report.to_markdown()
        with self._noting("HTML page", self._page):
            report.write_page(self._page)
        if self._markdown is not None:
            with self._noting("Markdown", self._markdown):
                self._markdown.write_text(markdown, encoding="utf-8")
        if self._updates and self._baseline_file is not None:
            with self._noting("SQL baseline", self._baseline_file):
                runs = [self._profile, *self._further_runs()]
                updated = self._baseline.updated(runs, self._config.rootpath)
                updated.save(self._baseline_file)
                if len(runs) > 1:
                    differing = sum(bool(each and each.ranges) for each in updated.tests.values())
                    tests = units.numbered(differing, "test")
                    self._notes.append(f"SQL baseline of {len(runs)} runs: ranges of {tests}")
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with self._noting("step summary", Path(summary)), Path(summary).open("a", encoding="utf-8") as file:
                file.write(markdown)

    def _further_runs(self) -> Iterator[SuiteProfile]:
        """Yield the profiles of the further runs of `--sql-learn`, each in a process of its own with other orders.

        A process of its own begins with empty caches: a test that came late then comes early.
        """
        arguments = [str(each) for each in self._config.invocation_params.args]
        program = ["-m", "pytest"] if Path(sys.argv[0]).name == "__main__.py" else [sys.argv[0]]
        for order in range(2, self._learns + 1):
            with tempfile.TemporaryDirectory(prefix="placebench-") as folder:
                file = Path(folder, "tests.jsonl")
                options = [
                    f"--sql-run={file}",
                    f"--sql-order={order}",
                    "--sql-learn=0",
                    f"--sql-page={folder}/page.html",
                ]
                run = subprocess.run(
                    [sys.executable, *program, *arguments, *options],
                    cwd=self._config.invocation_params.dir,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if not file.exists():
                    last = (run.stdout + run.stderr).strip().splitlines()[-1:]
                    self._notes.append(f"run {order} of --sql-learn ended with {run.returncode}: {''.join(last)}")
                    continue
                profile = SuiteProfile()
                for line in file.read_text(encoding="utf-8").splitlines():
                    profile.add(ProfiledTest.from_text(line))
                failed = sum(not test.has_passed for test in profile.tests.values())
                if failed > sum(not test.has_passed for test in self._profile.tests.values()):
                    order_text = "reversed" if order == 2 else "shuffled"
                    tests = units.numbered(failed, "test")
                    self._notes.append(f"{tests} failed in run {order} of --sql-learn, whose order is {order_text}")
                yield profile

    @contextmanager
    def _noting(self, what: str, path: Path) -> Iterator[None]:
        """Note that the block wrote *what* to *path*, or why that failed."""
        try:
            yield
        except OSError as error:
            self._notes.append(f"{what}: {path} cannot be written: {error}")
        else:
            self._notes.append(f"{what}: {path}")

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Show the lists of the report, one line per regression, and the paths of the written files."""
        if self._report is None:
            return
        terminalreporter.section("SQL profile", sep="=")
        for line in self._report.to_lines():
            terminalreporter.write_line(line)
        for change in () if self._updates else self._report.regressions:
            terminalreporter.write_line(f"SQL regression: {change}", red=True)
            for line in change.to_lines():
                terminalreporter.write_line(f"    {line}")
        for note in self._notes:
            terminalreporter.write_line(note)


def _path(config: pytest.Config, option: str) -> Path | None:
    name = config.getoption(option)
    return Path(name) if name else None


def _moved_the_root(config: pytest.Config, file: Path) -> bool:
    """Return whether pytest chose its rootdir from *file* because the path appeared on its command line.

    pytest chooses the rootdir before it knows the options of plugins, and tests have other names below another root.
    """
    if str(file) not in config.invocation_params.args or not file.exists():
        return False
    known = config.known_args_namespace
    values = {
        "inifile": known.inifilename,
        "override_ini": known.override_ini,
        "args": known.file_or_dir,
        "rootdir_cmd_arg": known.rootdir or None,
        "invocation_dir": config.invocation_params.dir,
        "config": config,
    }
    try:
        taken = inspect.signature(determine_setup).parameters
        root, configuration, *_ = determine_setup(**{name: values[name] for name in taken})
    except (KeyError, TypeError):  # another pytest's
        return False
    return (root, configuration) != (config.rootpath, config.inipath)
