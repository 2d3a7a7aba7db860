"""`placebench compare --control`: a slow-down that the run injects itself is found, or no gate on a time passes."""

import json
import math
import sqlite3
import sys
import time
import urllib.request
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_records import run_head

from placebench import results
from placebench.cli import main
from placebench.compare.keep.control import Control, ControlRecord
from placebench.compare.keep.run_folder import RunFolder
from placebench.compare.load.client_process import Client, Driven
from placebench.compare.measure.injected_control import calibrate
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.replicate import _RunningVariant
from placebench.compare.what.variants import Variant, wrapped
from placebench.compare.what.workload import SentRequest, Workload
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.usefixtures("without_profiles")

APP = """
import os
import sqlite3


def total():
    if os.environ["DATABASE_URL"].startswith("postgresql"):
        import psycopg2
        connection = psycopg2.connect(os.environ["DATABASE_URL"])
        with connection.cursor() as cursor:
            cursor.execute("SELECT sum(number) FROM numbers")
            (found,) = cursor.fetchone()
        connection.close()
        return str(found).encode()
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


def make_flask():
    from flask import Flask
    flask = Flask(__name__)
    flask.add_url_rule("/", view_func=total)
    return flask


async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": total()})


if __name__ == "__main__":
    import sys
    from wsgiref.simple_server import make_server
    make_server("127.0.0.1", int(sys.argv[1]), wsgi).serve_forever()
"""
SETUP = """
import os, sqlite3
if os.environ["DATABASE_URL"].startswith("postgresql"):
    import psycopg2
    with psycopg2.connect(os.environ["DATABASE_URL"]) as connection:
        connection.cursor().execute("CREATE TABLE numbers (number INTEGER); INSERT INTO numbers VALUES (1), (2)")
    raise SystemExit
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


def compare(folder: Path, *options: str, app: str = "wsgi", server: str = "uwsgi") -> int:
    """Compare the application with itself in one round per replicate."""
    (folder / "service.py").write_text(APP)
    (folder / "fill.py").write_text(SETUP)
    (folder / "plan.toml").write_text(PLAN.format(app=app, server=server))
    return main(
        ["compare", "--plan", str(folder / "plan.toml"), "--rounds", "1", "-o", f"{folder}/run", "-q", *options]
    )


@pytest.mark.long
def test_an_injected_slow_down_is_found_and_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A WSGI application that takes three times its CPU is found in six replicates; the change itself is none.

    What is found is what was injected, within twice the width of its interval. The control is in the text,
    the JSON document, the Markdown and the JUnit file, and in no list of variants.
    """
    code = compare(tmp_path, "-n", "6", "--control", "200%", "--gate", "cpu_s < 3x", "--json")

    document = json.loads(capsys.readouterr().out)
    found, run = document["control"], results.load(tmp_path / "run")
    assert (0, True, "cpu", 2.0) == (code, found["found"], found["kind"], found["amount"])
    assert run.control is not None
    assert found["injected_s"] == run.control.injected_s
    made = found["comparison"]
    injected = 1 + found["injected_s"] / made["baseline_value"]
    assert made["low"] > 1
    assert abs(math.log(made["ratio"] / injected)) < 2 * math.log(made["high"] / made["low"]) + 0.03
    assert ["old", "new"] == run.head.variants == document["responses"]["checked"]
    assert {"new"} == {each["variant"] for each in document["comparisons"]}
    assert "Control: +200 % CPU injected" in document["conclusion"]
    assert 0 < found["cost_s"] < run.head.elapsed_s
    assert "control +200 % CPU" in (tmp_path / "run" / "summary.md").read_text()
    assert 'name="control +200 % CPU"' in (tmp_path / "run" / "junit.xml").read_text()


@pytest.mark.long
def test_no_gate_on_a_time_passes_without_the_control(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two replicates of an ASGI application from a factory are too few to find anything, so a gate passes for nothing.

    A run that is resumed injects what its first session injected.
    """
    assert 3 == compare(tmp_path, "--sequential", "-n", "1", "--control", "50%", app="make_asgi()", server="uvicorn")
    first = results.load(tmp_path / "run").control
    served = {"server": "uvicorn", "interface": "asgi"}
    assert {"old": served, "new": served} == results.load(tmp_path / "run").head.manifest["servers"]
    assert "interface wsgi" not in (tmp_path / "run" / "index.html").read_text()
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


@pytest.mark.long
def test_a_control_gets_as_old_as_the_variants(tmp_path: Path) -> None:
    """Of six rounds the last three are served by processes that were sent the same number of untimed requests.

    The block after them says how many there were, for the share of requests that failed. The blocks of all have the
    same number of requests, however slow a variant is: the first one after another variant takes longer.
    """
    compare(tmp_path, "--rounds", "6", "-n", "1", "--control", "wait:3ms")

    blocks = results.load(tmp_path / "run").blocks
    own = {name: [each for each in blocks if each.variant == name] for name in ("old", "new", "control")}
    untimed = {
        name: [
            after.counters["served"] - after.requests - before.counters["served"] for before, after in pairwise(each)
        ]
        for name, each in own.items()
    }
    assert untimed["old"][5] == own["old"][6].counters["warm_up_requests"] > 100
    assert {name: [0.0] * 5 + [untimed["old"][5]] + [0.0] * 5 for name in own} == untimed
    assert 1 == len({block.requests for block in blocks})


@pytest.mark.long
def test_blocks_of_several_users_have_the_same_number_of_requests(tmp_path: Path) -> None:
    """At the end of a block some users have nothing to send: of a slower variant that is no larger share."""
    compare(tmp_path, "-n", "1", "--users", "2", "--control", "wait:5ms")

    blocks = results.load(tmp_path / "run").blocks
    assert {"old", "new", "control"} == {block.variant for block in blocks}
    assert 1 == len({block.requests for block in blocks})


COUNTED = """
import os


def application(environ, start_response):
    with open(os.environ["COUNT"], "ab", buffering=0) as count:
        count.write(b"1")
    sum(range(300_000))  # so that the client is not the one that uses a core
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
"""

HEAD = run_head(variants=["one"])


@pytest.mark.parametrize(("users", "requests"), [(1, 1 + 3 + 16), (2, 1 + 3 + 4 + 2 * 20)])
def test_the_cpu_of_a_request_is_measured_in_two_blocks_under_load(tmp_path: Path, users: int, requests: int) -> None:
    """Blocks of several users are long, ten requests for each: 2 of them are enough, instead of 16 of one request.

    Before them are the one that shows that it serves, 3 to warm up, and 2 for each user.
    """
    (tmp_path / "service.py").write_text(COUNTED)
    sqlite3.connect(tmp_path / "data.db").close()
    variables = {"PYTHONPATH": str(tmp_path), "COUNT": str(tmp_path / "count")}
    variants = tuple(Variant(each, module="service:application", variables=variables) for each in ("one", "control"))
    prepared = PreparedVariants(
        tuple(each.with_server("sqlite://") for each in variants),
        dict.fromkeys(("one", "control"), f"sqlite:///{tmp_path}/data.db"),
        Workload(calls=(SentRequest("GET", "/", label="GET /"),), cycle=(0,)),
        tmp_path,
        block_s=1e-6,
        users=users,
    )
    (tmp_path / "log").mkdir()

    found = calibrate(RunFolder(tmp_path, HEAD), prepared, Control("cpu", 0.03), "control")

    assert found.injected_s is not None
    assert requests == (tmp_path / "count").stat().st_size


def test_connections_that_open_in_the_warm_up_do_not_make_blocks_smaller(tmp_path: Path) -> None:
    """Of two passes of two users, 5 s for the cold one and 10 ms for the next: 200 cycles of 5 ms fill a second."""
    (tmp_path / "service.py").write_text(COUNTED)
    (tmp_path / "log").mkdir()
    variables = {"PYTHONPATH": str(tmp_path), "COUNT": str(tmp_path / "count")}
    variant = Variant("one", module="service:application", variables=variables).with_server("sqlite://")
    workload = Workload(calls=(SentRequest("GET", "/", label="GET /"),), cycle=(0,))
    prepared = PreparedVariants((variant,), {}, workload, tmp_path, block_s=1.0, users=2)
    elapsed_s = iter([5.0, 0.01])

    class ScriptedTimes(Client):
        def drive(self, *given: Any, users: int = 1, **more: Any) -> Driven:
            driven = super().drive(*given, users=users, **more)
            return replace(driven, elapsed_s=next(elapsed_s)) if users > 1 else driven

    with _RunningVariant.started(prepared, "one", "sqlite://", 0) as served:
        served.warm_up(ScriptedTimes(tmp_path))

    assert 200 == served.cycles_a_block


@pytest.mark.long
def test_a_resumed_run_tries_a_control_again_that_failed(tmp_path: Path) -> None:
    """What was injected stays for the whole run; nothing injected, as without a CPU figure, is not a size to keep."""
    run = RunFolder(tmp_path, HEAD)
    prepared = PreparedVariants((Variant("one"),), {}, Workload(), tmp_path, block_s=0.1)
    ControlRecord("wait", 0.001, "one", "control", None, "its CPU is unknown").save(tmp_path / "control.json")

    again = calibrate(run, prepared, Control("wait", 0.001), "control")
    kept = calibrate(run, prepared, Control("wait", 0.002), "control")

    assert (0.001, "") == (again.injected_s, again.reason)
    assert again == kept


def test_a_further_statement_is_found_without_replicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The control asks once more per request, which is counted in it alone; the gate on the change passes."""
    code = compare(tmp_path, "-n", "0", "--control", "statement", "--gate", "statements <= 1x", "--json")

    document = json.loads(capsys.readouterr().out)
    found = document["control"]["comparison"]
    assert (0, True) == (code, document["control"]["found"])
    assert (1.0, 2.0) == (found["baseline_value"], found["variant_value"])


def compare_command(folder: Path, command: str, *options: str, server: Server | None = None) -> int:
    """Compare what a command serves with itself, in one round per replicate."""
    (folder / "service.py").write_text(APP)
    (folder / "fill.py").write_text(SETUP)
    (folder / "plan.toml").write_text(
        f'database = "{"postgresql" if server else "sqlite"}"\nsetup = "python fill.py"\nrequest = "/"\n'
        f"[app]\ncommand = {json.dumps(command)}\n[variants.old]\n[variants.new]\n"
    )
    out = ("-o", str(folder / "run"), *(("--server", server.url) if server else ()))
    return main(["compare", "--plan", str(folder / "plan.toml"), "--rounds", "1", "-q", "--json", *out, *options])


GUNICORN = f"{sys.executable} -m gunicorn --bind 127.0.0.1:{{port}} --workers 2"
COMMANDS = {
    "gunicorn": f"{GUNICORN} service:wsgi",
    "gunicorn with uvicorn": f"{GUNICORN} --worker-class uvicorn_worker.UvicornWorker service:asgi",
    "uvicorn": f"exec {sys.executable} -m uvicorn --factory service:make_asgi --port {{port}}",
    "flask run": f"{sys.executable} -m flask --app service:make_flask run --port {{port}}",
    "wsgiref in a script": f"{sys.executable} service.py {{port}}",
}


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_a_further_statement_is_found_in_a_command(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A command's own Python processes inject it, once per request also if one server runs in another."""
    code = compare_command(tmp_path, COMMANDS[name], "-n", "0", "--control", "statement", server=server)

    control = json.loads(capsys.readouterr().out)["control"]
    assert (0, True, "") == (code, control["found"], control["reason"])
    assert (1.0, 2.0) == (control["comparison"]["baseline_value"], control["comparison"]["variant_value"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "amount", "metric"),
    [("gunicorn", "200%", "cpu_s"), ("uvicorn", "wait:30ms", "wall_s")],
)
def test_a_slow_down_is_injected_into_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, amount: str, metric: str
) -> None:
    """Three times the CPU of a request, or 30 ms that it waits: each request of the control has it."""
    compare_command(tmp_path, COMMANDS[name], "-n", "1", "--control", amount)

    control = json.loads(capsys.readouterr().out)["control"]
    blocks = [each for each in results.load(tmp_path / "run").blocks if each.variant == "control"]
    spent_s = sum(sum(each.wall_s) if metric == "wall_s" else each.cpu_s or 0.0 for each in blocks)
    assert metric == control["comparison"]["metric"]
    assert spent_s / sum(each.requests for each in blocks) > 0.9 * control["injected_s"] > 0


@pytest.mark.long
@pytest.mark.parametrize(("amount", "replicates"), [("3%", "1"), ("wait:1ms", "1"), ("statement", "0")])
def test_a_command_that_cannot_be_entered_has_no_control(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], amount: str, replicates: str
) -> None:
    """One line says so, nothing is injected, and no gate passes; this Python ignores all variables that name files."""
    command = f"{sys.executable} -I service.py {{port}}"
    gate = "statements <= 1x" if amount == "statement" else "wall_s < 1000s"

    code = compare_command(tmp_path, command, "-n", replicates, "--control", amount, "--gate", gate)

    document = json.loads(capsys.readouterr().out)
    control, run = document["control"], results.load(tmp_path / "run")
    assert (3, False, None) == (code, control["found"], control["injected_s"])
    assert "the command of old serves no application that can be changed: expected WSGI or ASGI" in control["reason"]
    assert control["reason"] in document["conclusion"]
    assert {"old", "new"} >= {block.variant for block in run.blocks}


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

    spec = wrapped(variant.with_server(url), tmp_path / "entered").spec(url, hash_seed=1, log=tmp_path / "log")
    with serve(spec) as running, urllib.request.urlopen(running.url) as response:
        assert (200, b"3") == (response.status, response.read())


@pytest.mark.parametrize(
    "command",
    [
        "-m hypercorn --bind 127.0.0.1:{port} service:asgi",
        "-m hypercorn --bind 127.0.0.1:{port} wsgi:service:wsgi",
        "-m granian --interface asgi --port {port} service:asgi",
        "-m granian --interface wsgi --port {port} service:wsgi",
        "-m flask --app service:make_flask run --port {port}",
    ],
)
def test_other_servers_of_a_command_are_entered(tmp_path: Path, command: str) -> None:
    """The response is the application's own, and takes as long as the wait that is injected."""
    (tmp_path / "service.py").write_text(APP)
    with sqlite3.connect(tmp_path / "data.db") as connection:
        connection.executescript("CREATE TABLE numbers (number INTEGER); INSERT INTO numbers VALUES (1), (2)")
    variables = {"PYTHONPATH": str(tmp_path), "PLACEBENCH_CONTROL_WAIT_S": "0.2"}
    variant = Variant("one", command=f"{sys.executable} {command}", variables=variables, server="command")

    spec = wrapped(variant, tmp_path / "entered").spec(f"sqlite:///{tmp_path}/data.db", hash_seed=1, log=tmp_path / "l")
    with serve(spec) as running:
        began_s = time.perf_counter()
        with urllib.request.urlopen(running.url) as response:
            assert (200, b"3") == (response.status, response.read())
        assert time.perf_counter() - began_s >= 0.2

    assert (tmp_path / "entered").exists()
