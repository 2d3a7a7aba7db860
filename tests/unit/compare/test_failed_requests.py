"""A variant that fails some of its requests is not compared, although the replicates without failures would pass."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from placebench import results
from placebench.cli import main
from placebench.report.run_report import run_report

pytestmark = [pytest.mark.long, pytest.mark.processes]

APP = """
import os, time

seen = waiting = 0

def application(environ, start_response):
    global seen, waiting
    seen += 1
    waiting += 1
    is_crowded = waiting > 1
    time.sleep(0.005)
    waiting -= 1
    status = "200 OK"
    if is_crowded and os.environ.pop("FAILS_IN_A_CROWD", ""):
        status = "500 Oops"
    if seen >= int(os.environ.get("FAILS_FROM", 10**9)):
        status = "500 Oops"
    if seen == int(os.environ.get("FAILS_AT", 0)):
        try:
            os.open(os.environ.get("ONCE", f"once-{os.getpid()}"), os.O_CREAT | os.O_EXCL)
            status = os.environ.get("STATUS", "500 Oops")
        except FileExistsError:
            pass
    if status == "dies":
        os._exit(1)
    start_response(status, [("Content-Length", "2")])
    return [b"ok"]
"""
FAILS_AT = 20
"""After the 15 requests until all are counted, and before those of a replicate end on a busy machine."""

LOADED = "users = 8\n[app]\nserver = 'gunicorn'\nthreads = 8"


def compare(folder: Path, monkeypatch: pytest.MonkeyPatch, keys: str = "", **variables: dict[str, str]) -> int:
    """Compare two variants of an application by their variables, in two small replicates; return the exit code."""
    monkeypatch.chdir(folder)
    (folder / "shop.py").write_text(APP)
    tables = [f"[variants.{name}]\napp = 'shop:application'" for name in variables]
    env = [", ".join(f"{key} = {value!r}" for key, value in each.items()) for each in variables.values()]
    tables = [f"{table}\nenv = {{ {each} }}" for table, each in zip(tables, env, strict=True)]
    (folder / "plan.toml").write_text("\n".join(["database = 'none'", "request = '/'", keys, *tables]))
    return main(["compare", "--plan", "plan.toml", "--out", "run", "-n", "2", "--rounds", "3"])


@pytest.mark.parametrize("is_once", [True, False])
def test_a_variant_that_fails_requests_which_the_first_one_does_not(
    is_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once in the whole run or in every replicate: exit code 1, with the variant, the request and the numbers."""
    once = {"ONCE": str(tmp_path / "once")} if is_once else {}

    assert 1 == compare(tmp_path, monkeypatch, main={}, change={"FAILS_AT": str(FAILS_AT), **once})

    said = capsys.readouterr()
    failed = int(re.findall(r"change failed (\d+) of ", said.err)[-1])
    # Once in each process that a busy machine lets serve so many; a replicate that it disturbed is made again.
    assert failed == 1 if is_once else failed > 1
    assert ", and main none of " in said.err
    assert "in the same replicates: 1 request failed, first: /: status 500" in said.err
    assert "faster" not in said.out
    run = tmp_path / "run"
    failures = ElementTree.parse(run / "junit.xml").findall("testcase/failure")
    same, errors = (each.attrib["message"] for each in failures)
    assert same.startswith("change failed ")
    shares = errors.removeprefix("failed: ").partition(", main ")[0]
    for text in (said.out, (run / "summary.md").read_text(), (run / "index.html").read_text()):
        assert shares in text.replace("\xa0", " ")
        assert "more errors" in text
    (found,) = run_report(results.load(run)).document["errors"]
    assert ("change", "more errors", 0) == (found["variant"], found["verdict"], found["before"]["failed"])
    assert 0 < found["after"]["low"] < found["after"]["share"] < found["after"]["high"]


def test_a_variant_is_not_accused_of_what_the_first_one_does_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both fail requests in every replicate: nothing is decided, and each discarded replicate names a variant."""
    fails = {"FAILS_AT": str(FAILS_AT)}

    assert 3 == compare(tmp_path, monkeypatch, main=fails, change=fails)

    assert "0 of 2 replicates count: 3 in a row do not, the last because " in (said := capsys.readouterr().err)
    assert said.count(": 1 request failed, first: /: status 500") == 4


def test_a_lost_connection_accuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that ends once may have been killed: its replicate is discarded, and the run goes on."""
    change = {"FAILS_AT": str(FAILS_AT), "ONCE": str(tmp_path / "once"), "STATUS": "dies"}

    compare(tmp_path, monkeypatch, main={}, change=change)

    said = capsys.readouterr().err
    assert "the replicate is discarded: change: " in said
    assert "inconclusive: 2 replicates, 6 needed" in said


def test_one_error_of_the_first_variant_excuses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first variant failed one request in the whole run, the other nearly all: exit code 1, with both numbers."""
    main = {"FAILS_AT": str(FAILS_AT), "ONCE": str(tmp_path / "once")}

    assert 1 == compare(tmp_path, monkeypatch, main=main, change={"FAILS_FROM": str(FAILS_AT)})

    said = capsys.readouterr()
    assert re.search(r"change failed \d+ of \d+ requests, and main 1 of \d+ in the same replicates: ", said.err)
    assert "faster" not in said.out


def test_an_error_in_the_warm_up_under_load_is_an_error_of_its_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under load more requests warm a service up: a failed one of them is named and counted like a timed one."""
    assert 1 == compare(tmp_path, monkeypatch, LOADED, main={}, change={"FAILS_IN_A_CROWD": "yes"})

    said = capsys.readouterr().err
    assert "change failed 3 of " in said
    assert "in the same replicates: in the warm-up 1 request failed, first: /: status 500" in said
