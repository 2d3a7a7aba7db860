"""`placebench profile attach` on real servers, as a user would call it."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.profiler import Recording
from placebench.runtime.ports import free_port

SHOP = """
from sqlalchemy import create_engine, text

from placebench.profiler import Sampling, SqlProfiler

profiler = SqlProfiler()
engine = create_engine("sqlite://")


def shop(environ, start_response):
    with engine.connect() as connection:
        for number in range(3):
            connection.execute(text("select :n"), {"n": number}).all()
    start_response("200 OK", [("Content-Length", "0")])
    return []


application = profiler.wsgi(shop, sampling=Sampling(rate=0.0))
"""


def answers(port: int) -> bool:
    """Whether a request to the server succeeds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.suppress(OSError), contextlib.closing(connection):
        connection.request("GET", "/orders")
        return connection.getresponse().status == 200
    return False


@contextlib.contextmanager
def serving(command: list[str], port: int, folder: Path, eventually: Callable[..., bool]) -> Iterator[int]:
    """The server, with requests that come all the time; gives its process."""
    (folder / "shop.py").write_text(SHOP)
    environment = {**os.environ, "PYTHONPATH": str(folder), "HOME": str(folder)}
    environment.pop("PYTHONSAFEPATH", None)
    ended = threading.Event()
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            assert eventually(lambda: answers(port), limit_s=60)
            sending = threading.Thread(target=lambda: any(iter(lambda: ended.is_set() or not answers(port), True)))
            sending.start()
            yield server.pid
        finally:
            ended.set()
            server.send_signal(signal.SIGINT)
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
            sending.join()


def gunicorn(port: int) -> list[str]:
    """Workers that are forked after the application was loaded: they share one channel."""
    pytest.importorskip("gunicorn")
    options = ["--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    return [sys.executable, "-m", "gunicorn", *options, "shop:application"]


def uwsgi(port: int) -> list[str]:
    """Workers that load the application each; without threads, as by default."""
    program = shutil.which("uwsgi", path=str(Path(sys.executable).parent)) or shutil.which("uwsgi")
    if program is None:
        pytest.skip("uwsgi is not installed: pip install pyuwsgi")
    options = ["--master", "--processes", "2", "--lazy-apps", "--need-app", "--disable-logging", "--die-on-term"]
    home = ["--virtualenv", sys.prefix] if sys.prefix != sys.base_prefix else []
    return [program, "--http-socket", f"127.0.0.1:{port}", *options, *home, "--module", "shop:application"]


@pytest.mark.parametrize("server", [gunicorn, uwsgi])
def test_the_requests_of_all_workers_are_one_recording(
    server: Callable[[int], list[str]],
    tmp_path: Path,
    eventually: Callable[..., bool],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the master's number, without a restart; the master goes on, and the file in memory is empty again."""
    port = free_port()
    with serving(server(port), port, tmp_path, eventually) as pid:
        command = ["profile", "attach", str(pid), "--seconds", "60", "--requests", "20", "-o", str(tmp_path / "out")]
        code = main([*command, "--json"])
        goes_on = answers(port)

    document = json.loads(capsys.readouterr().out)
    recording = Recording.load(tmp_path / "out" / "recording.json")
    assert (code, goes_on) == (0, True)
    assert recording.requests >= 20
    assert recording.statement_count == 3 * recording.requests
    assert {each.sql for each in recording.statements} == {"select ?"}
    assert {each.caller.function for each in recording.statements} == {"shop"}
    assert Path(document["files"]["page"]).is_file()


def test_a_number_of_no_use_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A process that is gone, and one without a middleware."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        codes = [main(["profile", "attach", str(number), "-o", str(tmp_path)]) for number in (2**22, other.pid)]
        other.communicate(b"\n")

    lines = capsys.readouterr().err.splitlines()
    assert (codes, len(lines)) == ([2, 2], 2)
    assert str(2**22) in lines[0]
    assert str(other.pid) in lines[1]


@pytest.mark.long
def test_a_load_and_the_profile_of_its_requests_are_one_page(
    tmp_path: Path, eventually: Callable[..., bool], capsys: pytest.CaptureFixture[str]
) -> None:
    """The page has the clients' figures and the mean request. A load without a recording keeps its own result."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--bind", f"127.0.0.1:{port}", "shop:application"]
    with serving(command, port, tmp_path, eventually) as pid:
        load = [
            "load",
            f"http://127.0.0.1:{port}",
            "--request",
            "/orders",
            "--requests",
            "40",
            "--users",
            "2",
            "--json",
        ]
        codes = [main([*load, "--profile", str(pid), "-o", str(tmp_path / "out")])]
        document = json.loads(capsys.readouterr().out)
        (tmp_path / "empty").mkdir()
        codes.append(main([*load, "--profile", str(tmp_path / "empty"), "-o", str(tmp_path / "other")]))
        unrecorded = capsys.readouterr()

    page = Path(document["profile"]["files"]["page"]).read_text()
    recording = Recording.load(tmp_path / "out" / "recording.json")
    assert (codes, document["requests"]) == ([0, 2], 40)
    assert recording.requests >= 40
    assert recording.statement_count == 3 * recording.requests
    assert "requests    40 in" in page
    assert "no request of the load was recorded by" in unrecorded.err
    assert json.loads(unrecorded.out)["requests"] == 40
    assert (tmp_path / "other" / "load.json").is_file()
