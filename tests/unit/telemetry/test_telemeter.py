"""What the middleware writes about a request, through the eyes of the reading side."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

from placebench import SqlProfiler
from placebench.compare.what.http_request import get
from placebench.report.telemetry import telemetry_report
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import ServerSpec
from placebench.telemetry import Telemeter, Telemetry, load
from placebench.telemetry.requests import WATCH_KEY


def ask(application: Callable[..., Any], path: str = "/orders/17", **environ: str) -> bytes:
    """One request as a server makes it: the body is used up and closed."""
    body = application({"REQUEST_METHOD": "GET", "PATH_INFO": path, **environ}, lambda *_: None)
    try:
        return b"".join(body)
    finally:
        if hasattr(body, "close"):
            body.close()


def ok(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Answers."""
    start_response("200 OK", [])
    return [b"well"]


@pytest.fixture
def telemeter(tmp_path: Path) -> Iterator[Telemeter]:
    """One that writes to tmp_path."""
    made = Telemeter(tmp_path)
    yield made
    made.close()


def read(telemeter: Telemeter, folder: Path) -> Telemetry:
    """What it has written."""
    telemeter.close()
    return load(folder)


def rows(telemetry: Telemetry, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of the durations, sorted."""
    return sorted(tuple(row) for row in telemetry.durations[list(columns)].to_numpy())


def test_any_application_gets_a_server_series(telemeter: Telemeter, tmp_path: Path) -> None:
    """Verb, pattern of the path and status; framework and handler are not known and not there."""
    application = telemeter.wsgi(ok)

    assert ask(application) == b"well"
    assert rows(read(telemeter, tmp_path), "series", "verb", "path", "status") == [
        ("server", "GET", "/orders/<id>", "200")
    ]


def test_a_framework_can_tell_its_route_and_its_handlers_time(telemeter: Telemeter, tmp_path: Path) -> None:
    """framework + handler is what the application took, and the server took a little more."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        environ[WATCH_KEY].route = "/orders/<number>"
        environ[WATCH_KEY].handler_s = 0.0
        return ok(environ, start_response)

    ask(telemeter.wsgi(application))
    telemetry = read(telemeter, tmp_path)

    assert rows(telemetry, "series", "path") == [
        ("framework", "/orders/<number>"),
        ("handler", "/orders/<number>"),
        ("server", "/orders/<number>"),
    ]
    took = telemetry.durations.set_index("series")["duration_s"]
    assert took["framework"] + took["handler"] <= took["server"]


def test_the_time_of_a_streamed_body_counts(telemeter: Telemeter, tmp_path: Path) -> None:
    """The request ends when the server closes the body, not when the application returns."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", [])
        began = time.perf_counter()
        while time.perf_counter() - began < 0.002:
            yield b"."

    ask(telemeter.wsgi(application))

    assert read(telemeter, tmp_path).durations["duration_s"].min() >= 0.002


def test_an_application_that_raises_is_written_with_its_error(telemeter: Telemeter, tmp_path: Path) -> None:
    """The error goes on to the server, as without us."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        ask(telemeter.wsgi(application))
    assert rows(read(telemeter, tmp_path), "status") == [("KeyError",)]


def test_what_a_client_sends_cannot_break_a_line(telemeter: Telemeter, tmp_path: Path) -> None:
    """A hostile verb, path and number give whole lines; only a plain number is taken for the request's."""
    application = telemeter.wsgi(ok)
    ask(application, path='/a,b"\n', REQUEST_METHOD="GE,T", HTTP_X_PLACEBENCH_REQUEST="1,2\n3")
    ask(application, HTTP_X_PLACEBENCH_REQUEST="²")
    ask(application, HTTP_X_PLACEBENCH_REQUEST="9" * 30)
    ask(application, HTTP_X_PLACEBENCH_REQUEST="42")
    telemetry = read(telemeter, tmp_path)

    assert telemetry.truncated == 0
    assert len(telemetry.durations) == 4
    assert 42 in set(telemetry.durations["request"])
    assert telemetry.durations["request"].nunique() == 4
    assert ("(other)", "/a;b' ") in rows(telemetry, "verb", "path")


def test_the_profiler_adds_spans_and_statements(telemeter: Telemeter, tmp_path: Path) -> None:
    """Spans of timed() are kept without a recording too; statements only where one is made."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    profiler = SqlProfiler(engine)
    profiler.listen(telemeter)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        with profiler.timed("look, up"), engine.connect() as connection:
            connection.execute(text("SELECT 'secret'")).all()
        return ok(environ, start_response)

    ask(telemeter.wsgi(application), path="/plain")
    ask(telemeter.wsgi(profiler.wsgi(application)), path="/recorded")
    profiler.remove()
    engine.dispose()
    telemetry = read(telemeter, tmp_path)
    found = rows(telemetry, "path", "series")

    assert [each for each in found if each[0] == "/plain"] == [("/plain", "server"), ("/plain", "timed")]
    assert ("/recorded", "statement") in found
    assert ("/recorded", "timed") in found
    assert ("/recorded", "recorded") in found
    assert set(telemetry.durations.query("series == 'timed'")["label"]) == {"look; up"}
    labels = set(telemetry.durations.query("series == 'statement'")["label"])
    assert dict.fromkeys(labels, "SELECT ?") == telemetry.statements
    assert telemetry.truncated == 0
    assert telemetry.durations.query("path == '/recorded'")["request"].nunique() == 1


def test_a_process_writes_its_figures(telemeter: Telemeter, tmp_path: Path) -> None:
    """Memory, CPU, collections, threads; at the beginning and at the end at the least."""
    ask(telemeter.wsgi(ok))
    runtime = read(telemeter, tmp_path).runtime

    assert set(runtime["name"]) == {
        "cpu_system_s",
        "cpu_user_s",
        "gc_collections",
        "gc_pause_s",
        "rss_bytes",
        "threads",
    }
    assert (runtime.groupby("name", observed=True).size() >= 2).all()


def test_a_folder_that_cannot_be_made_changes_no_answer(tmp_path: Path) -> None:
    """Telemetry that cannot be written is off; the application answers as before."""
    (tmp_path / "file").write_text("")
    telemeter = Telemeter(tmp_path / "file" / "below")

    assert ask(telemeter.wsgi(ok)) == b"well"
    telemeter.close()


SLOW_END = """
import atexit, os, time
from placebench.telemetry import Telemeter

def answer(environ, start_response):
    atexit.register(time.sleep, 0.3)
    time.sleep(0.3)
    start_response("200 OK", [])
    return [b"well"]

application = Telemeter(os.environ["PLACEBENCH_TELEMETRY"]).wsgi(answer)
"""


@pytest.fixture
def slow_end(tmp_path: Path) -> ServerSpec:
    """A worker under uWSGI that takes some time for a request, and to end."""
    (tmp_path / "slow_end.py").write_text(SLOW_END)
    return ServerSpec("none", module="slow_end:application", telemetry=tmp_path / "telemetry", folder=tmp_path)


def server_paths(spec: ServerSpec) -> list[tuple[str]]:
    """The path of each request that its workers have written."""
    assert spec.telemetry is not None
    return rows(load(spec.telemetry), "path")


@pytest.mark.processes
def test_a_second_signal_does_not_cut_off_the_last_rows(
    slow_end: ServerSpec, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    """It comes while a worker ends because of the first one."""
    with serve(slow_end) as server:
        get(server.url, "/orders/17")
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGHUP)
        assert eventually(lambda: "Gracefully killing" in server.log_tail())
        os.kill(worker, signal.SIGHUP)

    assert ("/orders/<id>",) in server_paths(slow_end)


@pytest.mark.processes
def test_a_busy_worker_of_a_slow_master_writes_its_last_rows(slow_end: ServerSpec) -> None:
    """The master gets no CPU until the request in flight is over."""
    with serve(slow_end) as server, ThreadPoolExecutor(2) as pool:
        in_flight = pool.submit(get, server.url, "/orders/17")
        os.kill(server.pid, signal.SIGSTOP)
        stopped = pool.submit(server.stop)
        in_flight.result()
        os.kill(server.pid, signal.SIGCONT)
        stopped.result()

    assert ("/orders/<id>",) in server_paths(slow_end)


def test_the_summary_tells_spans_apart(telemeter: Telemeter, tmp_path: Path) -> None:
    """Two spans of one request are two rows, each with its label."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    profiler = SqlProfiler(engine)
    profiler.listen(telemeter)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        with profiler.timed("notify"), profiler.timed("insert"):
            return ok(environ, start_response)

    ask(telemeter.wsgi(application))
    profiler.remove()
    engine.dispose()

    counts = read(telemeter, tmp_path).summary(("series", "label"))["count"]
    assert counts.to_dict() == {("server", ""): 1, ("timed", "insert"): 1, ("timed", "notify"): 1}
    assert load(tmp_path).summary().index.names == ["series", "label", "verb", "path", "status"]


def test_a_profiler_that_sees_no_statement_is_named_in_the_report(telemeter: Telemeter, tmp_path: Path) -> None:
    """Connections that are open before the profiler are not seen; without a profiler nothing is said."""
    connection = sqlite3.connect(":memory:")

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        connection.execute("SELECT 1").fetchall()
        return ok(environ, start_response)

    def notices() -> list[str]:
        telemeter.flush()
        return [each for each in telemetry_report(tmp_path, load(tmp_path)).notices if "statement" in each]

    ask(telemeter.wsgi(application))
    assert notices() == []

    profiler = SqlProfiler()
    try:
        profiler.listen(telemeter)
        ask(telemeter.wsgi(profiler.wsgi(application)))
        assert ["before SqlProfiler() was made" in each for each in notices()] == [True]

        connection = sqlite3.connect(":memory:")
        ask(telemeter.wsgi(profiler.wsgi(application)))
        assert notices() == []
    finally:
        profiler.remove()


def test_a_mix_of_seen_and_unseen_connections_is_named_in_the_report(telemeter: Telemeter, tmp_path: Path) -> None:
    """Of a pool of two connections, one is open before the profiler: half of the requests seem to need no database."""
    pool = [sqlite3.connect(":memory:")]
    profiler = SqlProfiler()
    try:
        pool.append(sqlite3.connect(":memory:"))
        profiler.listen(telemeter)

        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
            pool.reverse()
            pool[0].execute("SELECT 1").fetchall()
            return ok(environ, start_response)

        for _ in range(4):
            ask(telemeter.wsgi(profiler.wsgi(application)))
    finally:
        profiler.remove()
    telemeter.flush()

    (notice,) = (each for each in telemetry_report(tmp_path, load(tmp_path)).notices if "statement" in each)

    assert notice.startswith("The profiler saw no statement in 2 of 4 requests of GET ")
    assert "before SqlProfiler() was made" in notice


def test_a_view_is_timed_by_a_decorator(telemeter: Telemeter, tmp_path: Path) -> None:
    """A view that calls a view counts once; framework and handler fit into the request; outside nothing is timed."""

    @telemeter.handler
    def inner() -> bytes:
        return b"well"

    @telemeter.handler
    def view() -> bytes:
        return inner() + inner()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [])
        return [view()]

    assert ask(telemeter.wsgi(application)) == b"wellwell"
    assert view() == b"wellwell"
    took = read(telemeter, tmp_path).durations.set_index("series")["duration_s"]

    assert sorted(took.index) == ["framework", "handler", "server"]
    assert took["framework"] + took["handler"] <= took["server"]
