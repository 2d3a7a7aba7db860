"""`placebench compare --control`: a slow-down that the run injects itself is found, or no gate on a time passes."""

import json
import sqlite3
import urllib.request
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.compare.what.variants import Variant, wrapped
from placebench.runtime.application_servers import serve

APP = """
import os
import sqlite3


def total():
    with sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite:///")) as connection:
        (found,) = connection.execute("SELECT sum(number) FROM numbers").fetchone()
    for _ in range(20_000):
        pass
    return str(found).encode()


def wsgi(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [total()]


def make_asgi():
    return asgi


async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": total()})
"""
SETUP = """
import os, sqlite3
with sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite:///")) as connection:
    connection.execute("CREATE TABLE numbers (number INTEGER)")
    connection.execute("INSERT INTO numbers VALUES (1), (2)")
"""
PLAN = """
database = "sqlite"
setup = "python fill.py"
request = "/"

[app]
app = "service:{app}"
server = "{server}"

[variants.old]
[variants.new]
"""


def compare(folder: Path, *options: str, app: str = "wsgi", server: str = "gunicorn") -> int:
    """Compare the application with itself in one round per replicate."""
    (folder / "service.py").write_text(APP)
    (folder / "fill.py").write_text(SETUP)
    (folder / "plan.toml").write_text(PLAN.format(app=app, server=server))
    return main(
        ["compare", "--plan", str(folder / "plan.toml"), "--rounds", "1", "-o", f"{folder}/run", "-q", *options]
    )


def test_an_injected_slow_down_is_found_and_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A WSGI application that takes three times its CPU is found in six replicates; the change itself is none.

    The control is in the text, the JSON document, the Markdown and the JUnit file, and in no list of variants.
    """
    code = compare(tmp_path, "-n", "6", "--control", "200%", "--gate", "cpu_s < 3x", "--json")

    document = json.loads(capsys.readouterr().out)
    found, run = document["control"], results.load(tmp_path / "run")
    assert (0, True, "cpu", 2.0) == (code, found["found"], found["kind"], found["amount"])
    assert run.control is not None
    assert found["injected_s"] == run.control.injected_s
    assert found["comparison"]["low"] > 1
    assert ["old", "new"] == run.head.variants == document["responses"]["checked"]
    assert {"new"} == {each["variant"] for each in document["comparisons"]}
    assert "Control: +200 % CPU injected" in document["conclusion"]
    assert 0 < found["cost_s"] < run.head.elapsed_s
    assert "control +200 % CPU" in (tmp_path / "run" / "summary.md").read_text()
    assert 'name="control +200 % CPU"' in (tmp_path / "run" / "junit.xml").read_text()


def test_no_gate_on_a_time_passes_without_the_control(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two replicates of an ASGI application from a factory are too few to find anything, so a gate passes for nothing.

    A run that is resumed injects what its first session injected.
    """
    assert 3 == compare(tmp_path, "--sequential", "-n", "1", "--control", "50%", app="make_asgi()", server="uvicorn")
    first = results.load(tmp_path / "run").control
    capsys.readouterr()

    gates = ["--gate", "wall_s < 1000s", "--gate", "statements < 1000"]
    more = ("--sequential", "-n", "2", "--control", "50%", "--resume", *gates, "--json")
    code = compare(tmp_path, *more, app="make_asgi()", server="uvicorn")

    captured = capsys.readouterr()
    run = results.load(tmp_path / "run")
    assert 3 == code
    assert first == run.control
    assert not json.loads(captured.out)["control"]["found"]
    assert "control +50 % CPU not found: " in captured.err
    assert {"old", "new", "control"} == {block.variant for block in run.blocks}
    spent = {name: [block.cpu_s for block in run.blocks if block.variant == name] for name in ("old", "control")}
    assert sum(filter(None, spent["control"])) > 0 < sum(filter(None, spent["old"]))


def test_a_further_statement_is_found_without_replicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The control asks once more per request, which is counted in it alone; the gate on the change passes."""
    code = compare(tmp_path, "-n", "0", "--control", "statement", "--gate", "statements <= 1x", "--json")

    document = json.loads(capsys.readouterr().out)
    found = document["control"]["comparison"]
    assert (0, True) == (code, document["control"]["found"])
    assert (1.0, 2.0) == (found["baseline_value"], found["variant_value"])


def test_a_command_cannot_be_slowed_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says so before anything is started."""
    (tmp_path / "plan.toml").write_text(
        'request = "/"\n[variants.one]\ncommand = "serve {port}"\n[variants.two]\ncommand = "serve {port}"\n'
    )

    code = main(["compare", "--plan", str(tmp_path / "plan.toml"), "--control", "3%", "-o", str(tmp_path / "run")])

    assert 2 == code
    assert "--control slows the application of one down, and a command serves it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("server", "app"),
    [
        ("uwsgi", "wsgi"),
        ("gunicorn", "wsgi"),
        ("granian", "wsgi"),
        ("hypercorn", "wsgi"),
        ("uvicorn", "make_asgi()"),
        ("granian", "asgi"),
        ("hypercorn", "asgi"),
        ("gunicorn", "asgi"),
    ],
)
def test_each_server_serves_the_slowed_application(tmp_path: Path, server: str, app: str) -> None:
    """The response is the application's own, under each server that a variant may have."""
    (tmp_path / "service.py").write_text(APP)
    with sqlite3.connect(tmp_path / "data.db") as connection:
        connection.executescript("CREATE TABLE numbers (number INTEGER); INSERT INTO numbers VALUES (1), (2)")
    variant = Variant("one", module=f"service:{app}", variables={"PYTHONPATH": str(tmp_path)}, server=server)
    url = f"sqlite:///{tmp_path / 'data.db'}"

    spec = wrapped(variant.with_server(url)).spec(url, hash_seed=1, log=tmp_path / "log")
    with serve(spec) as running, urllib.request.urlopen(running.url) as response:
        assert (200, b"3") == (response.status, response.read())
