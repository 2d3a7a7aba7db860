"""What a database limits: `placebench study saturation` names its pool, its locks and its CPU."""

import json
import sys
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.long

APP = """
import os, queue

import psycopg2

kind, pool = os.environ["KIND"], queue.Queue()
for _ in range(2 if kind == "pool" else 8):
    pool.put(psycopg2.connect(os.environ["DATABASE_URL"]))
statement = {
    "pool": "SELECT pg_sleep(0.02)",
    "row": "UPDATE counters SET n = n + 1 RETURNING pg_sleep(0.02)",
    "cpu": "SELECT sum(sqrt(i)) FROM generate_series(1, 60000) AS i",
}[kind]


def application(environ, start_response):
    connection = pool.get()
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            cursor.fetchall()
    finally:
        pool.put(connection)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
PLAN = """
request = "/"
setup = "{python} setup.py"
may_change = ["counters"]

[app]
app = "service:application"
server = "gunicorn"
threads = 8

[variants.pool]
env = {{ KIND = "pool" }}

[variants.row]
env = {{ KIND = "row" }}

[variants.cpu]
env = {{ KIND = "cpu" }}
"""
SETUP = """
import os

import psycopg2

with psycopg2.connect(os.environ["DATABASE_URL"]) as connection:
    connection.cursor().execute("CREATE TABLE counters (n int); INSERT INTO counters VALUES (0)")
"""


def test_what_is_full_in_the_database(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two connections for eight threads, one row that every request updates, and a statement that computes."""
    for name, text in (("service.py", APP), ("plan.toml", PLAN.format(python=sys.executable)), ("setup.py", SETUP)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    words = ["--plan", "plan.toml", "--axis", "variant=pool,row,cpu", "--users", "8", "--time", "1.5", "-n", "1"]

    code = main(["study", "saturation", *words, "--server", server.url, "--out", "run", "--json"])

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert 0 == code
    found = {row["axes"]["variant"]: row["full"] for row in rows}
    assert {"pool": "pool wait", "row": "database lock"}.items() <= found.items(), rows
    assert found["cpu"] in ("database CPU", "machine CPU"), rows  # the second, if other programs use most of it
