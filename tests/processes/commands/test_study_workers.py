"""`placebench study workers` with functions and commands of a user's own, in real threads and processes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from placebench import results
from placebench.cli import main

SHOP = """
import asyncio
import os
import threading
import time

LOADED = bytearray(os.urandom(1 << 20) * 24)


def stock():
    time.sleep(0.02)
    return {"items": [1, 2, 3]}


async def stock_async():
    await asyncio.sleep(0.02)
    return {"items": [1, 2, 3]}


def decorated():
    return stock_async()


def nothing_done():
    yield {"items": [1, 2, 3]}


def asks():
    return {"items": [1] * (1 + len(input("how many more? ")))}


def alone():
    try:
        os.mkdir("taken")
    except FileExistsError:
        raise RuntimeError("somebody else is here") from None
    time.sleep(0.05)
    os.rmdir("taken")


def in_a_thread():
    if threading.current_thread() is threading.main_thread():
        raise RuntimeError("the main thread")


def broken():
    raise KeyError("no such order")


def misconfigured():
    os.environ["SHOP_DATABASE"]


def killed():
    os._exit(7)


def endless():
    time.sleep(60)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's module, which is the current one."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON document (empty without one) and the lines on standard error."""
    capsys.readouterr()
    code = main(["study", "workers", "-n", "1", "--json", *words])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err


@pytest.mark.long
def test_every_way_does_the_same_jobs(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight jobs of 20 ms take three workers three turns in any way, and return the same 24 results."""
    options = ("--async", "shop:stock_async", "--workers", "3", "--jobs", "8", "--count", "$.items[*]")

    code, document, _ = study(capsys, *options, "shop:stock")

    rows = {row["way"]: row for row in document["rows"]}
    assert (0, ["threads", "forks", "spawned", "loop"]) == (code, list(rows))
    assert {24} == {row["results"] for row in rows.values()}
    assert all(row["elapsed_s"] >= 0.06 for row in rows.values())
    assert all(row["n"] == 1 and row["ratio_low"] is None for row in rows.values())


def test_forks_share_what_was_loaded_before(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 24 MiB that the module loads, two forks have none alone, and two spawned processes one copy each."""
    _, document, _ = study(capsys, "--ways", "forks,spawned", "--workers", "2", "--jobs", "2", "shop:stock")

    forks, spawned = (row["uss_bytes"] for row in document["rows"])
    assert spawned - forks > 40 * 2**20


def test_a_way_that_cannot_do_the_job_is_named(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its reason; the other ways are measured."""
    code, document, _ = study(capsys, "--workers", "1", "--jobs", "2", "shop:in_a_thread")

    reasons = {each["point"]["way"]: each["reason"] for each in document["impossible"]}
    assert (0, ["threads"]) == (code, [row["way"] for row in document["rows"]])
    assert ["forks", "spawned", "loop", "free-threaded"] == list(reasons)
    assert {"RuntimeError: the main thread (shop.py:43)"} == {reasons[way] for way in ("forks", "spawned", "loop")}
    assert "--free-threaded" in reasons["free-threaded"]


def test_a_cell_that_fails_is_not_the_end(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that must be alone fails with two workers, and is measured with one."""
    code, document, _ = study(capsys, "--ways", "threads", "--workers", "1,2", "--jobs", "4", "shop:alone")

    one, two = document["rows"]
    assert (0, None, None) == (code, one["reason"], two["elapsed_s"])
    assert "RuntimeError: somebody else is here (shop.py:" in two["reason"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("shop:broken", "KeyError: 'no such order' (shop.py:"),
        ("shop:misconfigured", "KeyError: 'SHOP_DATABASE' (shop.py:"),
        ("shop:killed", "the program of the workers ended"),
        ("shop:no_such", "module 'shop' has no attribute 'no_such'"),
        ("no_such:stock", "No module named 'no_such'"),
        ("shop:LOADED", "'bytearray' object is not callable"),
        ("shop:nothing_done", "the job returned a generator, which does nothing until it is read"),
        ("shop:asks", "EOFError: EOF when reading a line (shop.py:"),
    ],
)
def test_a_job_that_cannot_be_done_is_one_line(
    function: str, reason: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves no run."""
    code, document, said = study(capsys, "-q", "--ways", "threads", function)

    assert (2, {}, 1) == (code, document, len(said.splitlines()))
    assert reason in said
    assert not (shop / "profiles").exists()


@pytest.mark.parametrize("way", ["forks", "spawned"])
def test_a_worker_process_that_dies_is_named(way: str, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its exit code."""
    code, _, said = study(capsys, "-q", "--ways", way, "shop:killed")

    assert code == 2
    assert "a worker process ended with exit code 7" in said


def test_a_job_that_does_not_end_is_given_up(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After --timeout, which the line names."""
    code, _, said = study(capsys, "-q", "--ways", "threads", "--timeout", "0.5", "shop:endless")

    assert code == 2
    assert "did not end in 0.5 s: give more time with --timeout" in said


def test_a_command_is_work_too(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every way, with what it prints as results, and its CPU although it has ended."""
    program = "sum(range(2_000_000)); print('7 rows')"
    options = ("--workers", "2", "--jobs", "4", "--count", r"(\d+) rows")

    code, document, _ = study(capsys, *options, "--", sys.executable, "-c", program)

    rows = {row["way"]: row for row in document["rows"]}
    assert (0, ["threads", "forks", "spawned", "loop"]) == (code, list(rows))
    assert {28} == {row["results"] for row in rows.values()}
    assert all(row["cpu_s"] > 0 for row in rows.values())


@pytest.mark.parametrize("way", ["threads", "loop"])
def test_a_coroutine_that_a_function_returns_is_awaited(
    way: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a decorated `async def` returns one, without being a coroutine function."""
    options = ("--ways", way, "--workers", "1", "--jobs", "2", "--count", "$.items[*]")

    code, document, _ = study(capsys, *options, "shop:decorated")

    assert (0, [6], True) == (code, [row["results"] for row in document["rows"]], document["rows"][0]["job_s"] >= 0.02)


@pytest.mark.parametrize("way", ["threads", "loop"])
def test_a_command_may_leave_processes_behind(way: str, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job ends with the command, although what it left has its output open; the report shows the words quoted."""
    options = ("--ways", way, "--workers", "1", "--jobs", "2", "--timeout", "20", "--count", r"(\d+) rows")

    code, document, _ = study(capsys, *options, "--", "sh", "-c", "echo 7 rows; sleep 60 &")

    assert (0, [14]) == (code, [row["results"] for row in document["rows"]])
    assert "sh -c 'echo 7 rows; sleep 60 &'" == results.load(next((shop / "profiles").glob("*-study-*"))).head.request


def test_a_command_that_fails_is_one_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its exit code and the last line of what it said."""
    code, _, said = study(capsys, "-q", "--ways", "threads", "--", "sh", "-c", "echo no rows >&2; exit 3")

    assert code == 2
    assert "the command ended with exit code 3: no rows" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["http://127.0.0.1:8000"], "placebench load --users"),
        (["compute"], "those of placebench lab study"),
        (["shop:stock", "--", "true"], "shop:stock true: a function is called without arguments"),
        (["--ways", "gevent", "shop:stock"], "expected threads, forks, spawned, loop, free-threaded"),
        (["--ways", "threads", "--async", "shop:stock_async", "shop:stock"], "--async is for the way loop"),
        (["--async", "shop:stock_async", "--", "true"], "--async is for a function"),
        (["--python", sys.executable, "--", "true"], "--python is for a function"),
        (["--python", "nowhere/python", "shop:stock"], "no Python at nowhere/python"),
        (["--ways", "loop", "shop:stock"], "the job is not a coroutine function (async def), and an event loop needs"),
        (["--count", "$items", "shop:stock"], "not a JSON path"),
    ],
)
def test_what_does_not_apply_is_refused(
    words: list[str], reason: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that has what was expected, or the command where it applies."""
    code, _, said = study(capsys, *words)

    assert (1, True) == (len(said.splitlines()), code in (2, 127)), said
    assert reason in said


@pytest.mark.long
def test_six_replicates_decide_and_a_killed_run_goes_on(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four threads take less time than one for jobs that wait; what a kill has cut short is measured again."""
    words = ["study", "workers", "--ways", "threads", "--workers", "1,4", "--jobs", "4", "--json", "--out", "run"]
    assert 0 == main([*words, "shop:stock"])
    before = json.loads(capsys.readouterr().out)
    measurements = shop / "run" / "measurements.jsonl"
    measurements.write_text(measurements.read_text()[:-20])

    assert 0 == main([*words, "--resume", "shop:stock"])

    after = json.loads(capsys.readouterr().out)
    assert [6, 6] == [row["n"] for row in after["rows"]]
    assert 12 == len(results.load(shop / "run").measurements)
    assert all(document["rows"][1]["ratio_high"] < 1 for document in (before, after))
    assert 2 == main([*words[:-4], "--jobs", "9", "--json", "--out", "run", "--resume", "shop:stock"])
