"""`placebench study network` over an application and over copies of data, on a real PostgreSQL."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from placebench.cli import main
from placebench.runtime.postgres import Server

APPLICATION = '''
import os
import psycopg2

def application(environ, start_response):
    """Respond with five numbers, each read by its own statement, on a connection of the request."""
    connection = psycopg2.connect(os.environ["DATABASE_URL"].replace("+psycopg2", ""))
    cursor = connection.cursor()
    found = []
    for number in range(STATEMENTS):
        cursor.execute("SELECT max(n) FROM numbers")
        found += cursor.fetchone()
    connection.close()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(found[:1] * 5).encode()]
'''
SEED = "psql -q -c 'CREATE TABLE numbers (n integer)' -c 'INSERT INTO numbers SELECT generate_series(1, 7)'"
PLAN = f"""
[tool.placebench]
setup = "{SEED}"
request = "GET /"

[tool.placebench.variants.many]
app = "many:application"

[tool.placebench.variants.one]
app = "one:application"
"""
INSERT = """
import os, psycopg2
connection = psycopg2.connect(os.environ["DATABASE_URL"].replace("+psycopg2", ""))
cursor = connection.cursor()
cursor.execute("INSERT INTO numbers SELECT 8 RETURNING (SELECT count(*) FROM numbers)")
assert cursor.fetchone() == (7,)
connection.commit()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two applications, which differ in the number of their statements."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    for name, statements in (("many", 5), ("one", 1)):
        (tmp_path / f"{name}.py").write_text(APPLICATION.replace("STATEMENTS", str(statements)))
    (tmp_path / "pyproject.toml").write_text(PLAN)
    return tmp_path


def study(capsys: pytest.CaptureFixture[str], server: Server, *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["study", "network", "-q", "--json", "-n", "1", "--server", server.url, *words])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


@pytest.mark.long
def test_a_statement_is_a_round_trip_to_the_database(
    server: Server, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four statements more are four round trips more, each of the latency; the CPU of ended backends is there too."""
    code, document, _ = study(capsys, server, "--latency-ms", "0,30")
    many, many_away, one, one_away = document["rows"]

    assert 0 == code
    assert ["many", "many", "one", "one"] == [row["variant"] for row in document["rows"]]
    assert [4, 4] == [many["round_trips"] - one["round_trips"], many_away["round_trips"] - one_away["round_trips"]]
    assert [1, 1] == [many_away["connections"], one_away["connections"]]
    # One handshake more, and one message without a response, the end of the session, less.
    assert many_away["elapsed_s"] >= many_away["round_trips"] * 0.030
    assert pytest.approx(4 * 0.030) == one_away["predicted_growth_s"]
    assert many["cpu_s"] is None or many["cpu_s"] > 0


@pytest.mark.long
def test_the_client_of_an_application_can_be_far_away(
    server: Server, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One connection and one round trip for each of three requests, whatever the application does behind them."""
    words = ["--between", "client", "--latency-ms", "0,10+20", "--operations", "3", "--variants", "many"]
    code, document, _ = study(capsys, server, *words)

    assert 0 == code
    assert [(3, 3), (3, 3)] == [(row["round_trips"], row["connections"]) for row in document["rows"]]
    assert ["0", "10+20"] == [row["link"] for row in document["rows"]]
    assert document["rows"][1]["elapsed_s"] >= 3 * 0.040


@pytest.mark.long
def test_an_application_that_fails_is_named_and_the_other_is_measured(
    server: Server, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error is in the row."""
    (shop / "many.py").write_text("raise RuntimeError('out of order')")
    code, document, _ = study(capsys, server, "--latency-ms", "0")
    rows = {row["variant"]: row for row in document["rows"]}

    assert 0 == code
    assert rows["one"]["round_trips"] > 0
    assert rows["many"]["elapsed_s"] is None
    assert "out of order" in rows["many"]["reason"]


@pytest.mark.long
def test_applications_that_respond_differently_get_no_speed(
    server: Server, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a comparison."""
    (shop / "one.py").write_text((shop / "one.py").read_text().replace("found[:1] * 5", "found"))
    code, document, said = study(capsys, server, "--latency-ms", "0")

    assert 1 == code
    assert [] == document["rows"]
    assert "responds differently" in said


@pytest.mark.long
def test_each_run_of_a_command_has_a_new_copy_of_the_data(
    server: Server, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command counts seven rows and adds one: in a second run on the same copy it would count eight."""
    (shop / "insert.py").write_text(INSERT)
    words = ["--setup", SEED, "--latency-ms", "0,1", "--", sys.executable, "insert.py"]
    code, document, _ = study(capsys, server, *words)

    assert 0 == code
    assert [None, None] == [row["reason"] for row in document["rows"]]


def test_sqlite_has_no_network(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says that the client can be far away, and a load's keys are refused by the name of their command."""
    plan = (shop / "pyproject.toml").read_text()
    (shop / "pyproject.toml").write_text(plan.replace("setup = ", 'database = "sqlite"\nsetup = '))
    assert 2 == main(["study", "network"])
    assert "uses SQLite, so that no link can be before it: add --between client" in capsys.readouterr().err
    assert 2 == main(["study", "network", "--between", "client", "--server", "postgresql:///x"])
    assert "--server is a PostgreSQL server, and the application uses SQLite" in capsys.readouterr().err

    (shop / "pyproject.toml").write_text(plan.replace("setup = ", "users = 4\nsetup = "))
    assert 2 == main(["study", "network"])
    assert "users is for placebench compare" in capsys.readouterr().err
