"""What many tests share: one PostgreSQL and one MariaDB for the whole session, a fresh empty database for each test
that asks for one, and patience for what happens in another process."""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from loopback_sshd import loopback_sshd

from placebench.errors import DatabaseError
from placebench.meters.remote_hosts import RemoteHost
from placebench.runtime.mariadb import MariaDbServer, find_mariadbd, temporary_mariadb
from placebench.runtime.postgres import Server, open_server
from placebench.runtime.supervisor import tail_file

# What the host of this machine does to it is not what the tests are about.
os.environ.setdefault("PLACEBENCH_STEAL_AT_MOST", "1")
# A generated example may take any time on a busy machine.
settings.register_profile("busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

_LOG_LINES = 40
_MAX_LOGS = 6
_USE_OTHER_PROGRAMS = {"server", "database_url", "mariadb", "ssh_host"}
"""Fixtures that start a server."""

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with a server belongs to those that start processes, without a mark of its own."""
    for item in items:
        if _USE_OTHER_PROGRAMS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("processes")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests are compiled once and kept, with the asserts that pytest rewrites: they are two thirds of a collection."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


def pytest_collection_finish() -> None:
    """Collections leave alone what was imported and collected: thousands of tests and their modules stay to the end."""
    gc.collect()
    gc.freeze()


_starting_is_refused = False


def pytest_sessionstart(session: pytest.Session) -> None:
    """Without the tests that are marked `processes`, every other one that starts a process fails and names the mark."""
    if session.config.getoption("markexpr") == "not processes":
        sys.addaudithook(_refuse_to_start)


def _refuse_to_start(event: str, _: object) -> None:
    if _starting_is_refused and event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"):
        raise RuntimeError("this test starts a process: mark it with pytest.mark.processes")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Workers of pytest-xdist may be started, beside the tests."""
    global _starting_is_refused
    _starting_is_refused = True
    try:
        return (yield)
    finally:
        _starting_is_refused = False


class FailuresAtOnce:
    """Shows each failure when it happens: a run of twenty minutes may be ended by hand, or by its machine."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what the end of the run repeats, with the log of each child."""
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.section(f"{report.when} of {report.nodeid} failed")
            report.toterminal(self._terminal._tw)
            for title, text in report.sections:
                self._terminal.section(title, sep="-")
                self._terminal.line(text.rstrip())


@pytest.hookimpl(trylast=True)  # after pytest has made its terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    """Show failures at once where many tests run; workers of pytest-xdist have no terminal."""
    if (terminal := config.pluginmanager.get_plugin("terminalreporter")) and config.getoption("numprocesses", None):
        config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure shows the end of each log that a child process has written since the test began, and of its stderr."""
    report = yield
    if report.failed:
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, subprocess.CalledProcessError) and error.stderr:
            said = error.stderr if isinstance(error.stderr, str) else error.stderr.decode(errors="replace")
            report.sections.append(("end of the child's stderr", "\n".join(said.splitlines()[-_LOG_LINES:])))
        report.sections += [(f"end of {log}", tail_file(log, _LOG_LINES)) for log in _logs(item, call.start)]
    return report


def _logs(item: pytest.Item, since_s: float) -> list[Path]:
    """The logs in the folders of the test and of servers that run, the last written first; six at most."""
    values = getattr(item, "funcargs", {}).values()
    folders = {value for value in values if isinstance(value, Path) and value.is_dir()}
    found = {log for folder in folders for log in folder.rglob("*.log")}
    if _USE_OTHER_PROGRAMS.intersection(getattr(item, "fixturenames", ())):
        found.update(Path(tempfile.gettempdir()).glob("placebench-*/*.log"))
    written: dict[Path, float] = {}
    for log in found:
        with suppress(OSError):  # servers of other tests come and go
            if (state := log.stat()).st_size and state.st_mtime >= since_s:
                written[log] = state.st_mtime
    return sorted(written, key=written.__getitem__, reverse=True)[:_MAX_LOGS]


@pytest.fixture(autouse=True)
def own_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imports from a temporary folder is forgotten after it: the next one may have a `shop` of its own."""
    folder, path, before = tmp_path_factory.getbasetemp(), list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(place and Path(place).is_relative_to(folder) for place in places):
            del sys.modules[name]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server to test on: $PLACEBENCH_DATABASE_URL, or a private one that is gone after the session."""
    with open_server() as opened:
        yield opened


@pytest.fixture
def database_url(server: Server) -> Iterator[str]:
    """The URL of a fresh empty database as a superuser, dropped after the test with whoever is still connected."""
    name = f"placebench_test_{next(_numbers)}"
    server.create_database(name)
    yield server.admin_url(name)
    server.drop_database(name)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB of our own, for the session; without the program or its driver its tests are skipped."""
    pytest.importorskip("pymysql", reason="PyMySQL is not installed: pip install 'placebench[mariadb]'")
    try:
        find_mariadbd()
    except DatabaseError as error:
        pytest.skip(str(error))
    with temporary_mariadb() as running:
        yield running


@pytest.fixture(scope="session")
def ssh_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteHost]:
    """This machine, through an sshd."""
    with loopback_sshd(tmp_path_factory.mktemp("sshd")) as host:
        yield host


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """A function that waits until a condition holds, and says whether it does.

    It waits 30 s at most: long enough for a busy machine, and too short for the `sleep 60` of tests to end by itself.
    """

    def wait(condition: Callable[[], bool], *, limit_s: float = 30.0) -> bool:
        deadline = time.monotonic() + limit_s
        while not (holds := condition()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return holds

    return wait


@pytest.fixture
def runs() -> Callable[[int], bool]:
    """A function that says whether a process still runs; one that nobody has reaped yet does not."""

    def is_alive(pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in "ZX"

    return is_alive


@pytest.fixture
def in_foreground() -> Iterator[None]:
    """As in a terminal: SIGINT and SIGHUP are not ignored, as they are for what nohup or a script's `&` starts."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def without_placement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a checkout in which `tox -e oracle` was never run."""
    monkeypatch.setattr("placebench.lab.variants.profiles_folder", lambda: tmp_path / "profiles")


@pytest.fixture
def documented() -> Callable[[str], set[str]]:
    """A function that gives the keys of a study's row, as docs/reference/json.md has them."""

    def keys(study: str) -> set[str]:
        page = (Path(__file__).parents[1] / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
        section = page.partition(f"### {study}\n")[2].partition("###")[0]
        return set(re.split(r",\s*", section.split("`")[1]))

    return keys
