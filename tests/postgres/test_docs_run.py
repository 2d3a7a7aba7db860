"""The Python in the documentation runs as it stands; its commands: tests/unit/test_docs.py."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from sqlalchemy import create_engine, text
from statements import run

from placebench.cli import main
from placebench.runtime.postgres import Server
from placebench.runtime.postgres.binaries import find_binaries
from placebench.runtime.postgres.connection import plain_url

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_runs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/lab/python.md are one script, and its assertions hold."""
    monkeypatch.setenv("PLACEBENCH_DATABASE_URL", server.url)
    blocks = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "lab" / "python.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    script = "\n".join(blocks)

    exec(compile(script, "docs/lab/python.md", "exec"), {})

    assert len(blocks) >= 6


class ThreadingServer(ThreadingMixIn, WSGIServer):
    """A thread for each connection."""


class QuietHandler(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, *_: object) -> None:
        """Leave it out."""


@pytest.fixture
def notes(database_url: str) -> Iterator[tuple[str, list[int]]]:
    """The URL of an application that keeps notes, and how many it has lost and doubled: each tenth, each fifteenth."""
    run(database_url, "CREATE TABLE notes (text text)")
    engine, numbers, lock, broken = create_engine(database_url), count(1), Lock(), [0, 0]

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        note = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        with lock:
            number = next(numbers)
            times = 0 if number % 10 == 0 else 2 if number % 15 == 0 else 1
            broken[0] += times == 0
            broken[1] += times == 2
        with engine.begin() as connection:
            for _ in range(times):
                connection.execute(text("INSERT INTO notes VALUES (:text)"), note)
        start_response("201 Created", [("Content-Length", "0")])
        return [b""]

    with make_server("127.0.0.1", 0, application, ThreadingServer, QuietHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", broken
        server.shutdown()
    engine.dispose()


@pytest.mark.long
def test_lost_and_doubled_writes_are_found(
    notes: tuple[str, list[int]], database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe of docs/howto/load.md counts what an application promised and did not keep."""
    page = (DOCS / "howto" / "load.md").read_text().partition("## Check that no write is lost")[2]
    locustfile, sql = (
        re.findall(rf"^```{name}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0] for name in ("python", "sql")
    )
    (tmp_path / "writes.py").write_text(locustfile)
    (tmp_path / "writes.sql").write_text(sql)
    monkeypatch.chdir(tmp_path)
    url, broken = notes

    exit_code = main(["load", url, "--locustfile", "writes.py", "--users", "4", "--time", "2", "--out", "load"])

    psql = [find_binaries().program("psql"), plain_url(database_url), "-qtAf", "writes.sql"]
    found = subprocess.run(psql, capture_output=True, text=True, check=True).stdout.strip()
    written = len((tmp_path / "promised.txt").read_text().splitlines())
    assert (0, f"{written}|{broken[0]}|{broken[1]}") == (exit_code, found)
    assert broken[0] > 0
