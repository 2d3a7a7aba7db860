"""What `placebench compare` sees of a variant that changes once it is warm."""

import json
import sys
from pathlib import Path

import pytest

from placebench.cli import main

APP = """
import itertools
import os
import sqlite3

NUMBER = itertools.count()
KEPT = []


def wsgi(environ, start_response):
    if not KEPT or os.environ["KIND"] == "honest" or next(NUMBER) < 250:
        with sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite:///")) as connection:
            KEPT[:] = connection.execute("SELECT sum(number) FROM numbers").fetchone()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(KEPT[0]).encode()]
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
app = "service:wsgi"

[variants.honest]
env = { KIND = "honest" }
[variants.warm]
env = { KIND = "warm" }
"""


@pytest.mark.long
def test_a_variant_that_answers_from_memory_once_it_is_warm_is_named(
    tmp_path: Path, without_profiles: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite counts nothing: statements are counted again after each further hundred requests."""
    monkeypatch.setattr("placebench.compare.measure.counted_pass._LATER_REQUESTS", 300)
    for name, text in (("service.py", APP), ("fill.py", SETUP), ("plan.toml", PLAN)):
        (tmp_path / name).write_text(text)

    words = [
        "compare",
        "--plan",
        str(tmp_path / "plan.toml"),
        "-n",
        "1",
        "--rounds",
        "1",
        "--warmup",
        "80",
        "-q",
        "--json",
    ]
    code = main([*words, "--bound", "200ms", "-o", str(tmp_path / "run")])

    document = json.loads(capsys.readouterr().out)
    conclusion = str(document["conclusion"])
    assert 3 == code
    assert "warm sends 0 statements on tables per request while it is timed, and 1 when they are counted" in conclusion
    assert "honest sends" not in conclusion
    assert (
        "warm sends 0 statements on tables per request while it is timed" in (tmp_path / "run/index.html").read_text()
    )
    settings = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (80, 0.2) == (settings["settings"]["warmup"], settings["settings"]["bound_s"])
    assert (80, 0.2) == (settings["plan"]["warmup"], settings["plan"]["bound_s"])
    blocks = [json.loads(line) for line in (tmp_path / "run" / "blocks.jsonl").read_text().splitlines()]
    assert 80 < min(block["counters"]["served"] for block in blocks)
    assert all(block["counters"][name] > 0 for block in blocks for name in ("start_s", "start_pss_bytes"))


def test_a_report_says_why_no_statement_was_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The profiler counts on SQLite, and does not enter a command: its gates are inconclusive for that reason."""
    command = f"{sys.executable} -m gunicorn --bind 127.0.0.1:{{port}} service:wsgi"
    plan = PLAN.replace('app = "service:wsgi"', f'command = "{command}"').replace('"warm"', '"honest"')
    for name, text in (("service.py", APP), ("fill.py", SETUP), ("plan.toml", plan)):
        (tmp_path / name).write_text(text)
    words = ["compare", "--plan", str(tmp_path / "plan.toml"), "-n", "0", "--gate", "statements <= 1x", "-q"]

    assert 3 == main([*words, "-o", str(tmp_path / "run")])

    reason = "without PostgreSQL the profiler counts them, which does not enter a command"
    told = capsys.readouterr().out
    assert f"Statements and rows of honest and warm are not counted: {reason}" in told
    assert reason in (tmp_path / "run" / "summary.md").read_text()
    assert reason in (tmp_path / "run" / "index.html").read_text()


LATE = """
import itertools

from locust import HttpUser, task

NUMBER = itertools.count()


class Reader(HttpUser):
    @task
    def read(self):
        self.client.get("/" if next(NUMBER) < 4 else "/late")
"""


@pytest.mark.long
def test_requests_that_a_locustfile_sends_only_later_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks are drawn at random: a route may be missing from the warm-up. Each request has its one statement."""
    plan = PLAN.replace('request = "/"', 'locustfile = "late.py"').replace('"warm"', '"honest"')
    for name, text in (("service.py", APP), ("fill.py", SETUP), ("late.py", LATE), ("plan.toml", plan)):
        (tmp_path / name).write_text(text)
    words = ["compare", "--plan", str(tmp_path / "plan.toml"), "-n", "0", "-q", "--json"]

    assert 0 == main([*words, "-o", str(tmp_path / "run")])

    capsys.readouterr()
    counted = json.loads((tmp_path / "run" / "wire-honest.json").read_text())
    assert {1.0} == set(counted["statements"])


FAILING = """
import os
import sqlite3

seen = 0


def wsgi(environ, start_response):
    global seen
    seen += 1
    with sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite:///")) as connection:
        for _ in range(int(os.environ["TIMES"])):
            total = connection.execute("SELECT sum(number) FROM numbers").fetchone()
    start_response("200 OK" if seen < 450 else "500 Oops", [("Content-Type", "text/plain")])
    return [str(total[0]).encode()]
"""


@pytest.mark.long
def test_a_count_fails_its_gate_though_no_replicate_counts(
    tmp_path: Path, without_profiles: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both variants fail requests once they are timed; one more statement, which was counted before, is exit code 1."""
    plan = PLAN.replace('KIND = "honest"', 'TIMES = "1"').replace('KIND = "warm"', 'TIMES = "2"')
    for name, text in (("service.py", FAILING), ("fill.py", SETUP), ("plan.toml", plan)):
        (tmp_path / name).write_text(text)
    gates = ["--gate", "statements <= 1x", "--gate", "cpu_s <= 2x"]

    code = main(
        [
            "compare",
            "--plan",
            str(tmp_path / "plan.toml"),
            "-n",
            "2",
            *gates,
            "-q",
            "--json",
            "-o",
            str(tmp_path / "run"),
        ]
    )

    said = capsys.readouterr()
    outcomes = {each["name"]: each["outcome"] for each in json.loads(said.out)["checks"]}
    assert 1 == code
    assert "3 in a row do not" in (tmp_path / "run" / "summary.md").read_text()
    assert ("failed", "inconclusive") == (outcomes["statements <= 1x"], outcomes["cpu_s <= 2x"])
