"""`placebench profile live` on a real server and on a folder, as a user would call it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from placebench.profiler import Recording, Statement

pytestmark = pytest.mark.usefixtures("in_foreground")
SERVER = """
import sys
from wsgiref.simple_server import make_server

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


with make_server("127.0.0.1", 0, profiler.wsgi(shop, sampling=Sampling(rate=0.0))) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A program that is interrupted at the end; its temporary folder is below *folder*."""
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    with (
        (folder / "stderr").open("a") as said,
        subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            interrupt(process)


def interrupt(process: subprocess.Popen[str]) -> None:
    """End the program by Ctrl-C; once more if it goes on, because wsgiref takes one within a request for an error."""
    try:
        for timeout_s in (10, 30):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=timeout_s)
                return
        raise AssertionError("the program goes on after two interrupts")
    finally:
        process.kill()


def get(port: int, path: str) -> str:
    """The text of a response."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@contextmanager
def events(address: str) -> Iterator[Iterator[dict[str, Any]]]:
    """What the page's stream says."""
    parts = urlsplit(address)
    with socket.create_connection(("127.0.0.1", parts.port), timeout=60) as stream:
        stream.sendall(f"GET {parts.path}events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        with stream.makefile("r", encoding="utf-8", newline="\n") as file:
            yield (json.loads(line[6:]) for line in file if line.startswith("data: "))


def rows_until(found: Iterator[dict[str, Any]], count: int) -> list[list[Any]]:
    """The rows of the stream until there are so many."""
    rows: list[list[Any]] = []
    for update in found:
        rows += update["rows"]
        if len(rows) >= count:
            break
    return rows


def saved(folder: Path, number: int) -> None:
    """Save a recording as a server's process 7 does."""
    statement = Statement("select 1", "select 1", 0.0, execute_s=0.1)
    Recording(f"GET /{number}", "light", statements=[statement], elapsed_s=0.2).save(
        folder / f"7-{number}.recording.json"
    )


def test_a_folder_is_shown_while_it_is_written(tmp_path: Path) -> None:
    """What is there already and what comes later, each once; a file that is not a recording is one line on stderr."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    saved(folder, 1)
    (folder / "8-1.recording.json").write_text("{}")
    with running(tmp_path, "-m", "placebench", "profile", "live", "--folder", str(folder)) as live:
        address = live.stdout.readline().strip()
        with events(address) as found:
            first = rows_until(found, 1)
            saved(folder, 2)
            second = rows_until(found, 1)
        modes = [path.stat().st_mode & 0o777 for path in tmp_path.glob("placebench-live-*")]
        assert "GET /2" in get(urlsplit(address).port, f"{urlsplit(address).path}recordings/2")

    said = (tmp_path / "stderr").read_text()
    assert (live.returncode, [row[3] for row in (*first, *second)]) == (0, ["GET /1", "GET /2"])
    assert [row[10] for row in first] == [7]
    assert said.count("8-1.recording.json") == 1
    assert "Traceback" not in said
    assert modes == [0o700]
    assert list(tmp_path.glob("placebench-live-*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="profile attach finds a process by /proc")
def test_a_running_process_is_shown_without_a_restart(tmp_path: Path) -> None:
    """By its number; after the command has ended it serves on."""
    (tmp_path / "server.py").write_text(SERVER)
    with running(tmp_path, "server.py") as server:
        port = int(server.stdout.readline())
        command = ("-m", "placebench", "profile", "live", str(server.pid), "--mode", "light", "--json")
        with running(tmp_path, *command) as live:
            written = "".join(iter(live.stdout.readline, "}\n")) + "}"
            with events(json.loads(written)["address"]) as found:
                for _ in range(3):
                    get(port, "/orders")
                rows = rows_until(found, 3)
        assert live.returncode == 0
        assert get(port, "/orders") == ""

    assert [(row[3], row[4], row[7], row[10]) for row in rows] == [("GET /orders", 200, 3, server.pid)] * 3
