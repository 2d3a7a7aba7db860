import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.compare.keep.records import LoadResult
from placebench.compare.what.http_request import get, send
from placebench.runtime.running_server import RunningServer

Served = Callable[..., RunningServer]


def test_load_prints_what_it_saw(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests, quantiles with 10 samples above them, failures; every sample goes where --out says."""
    out = tmp_path / "load.json"
    exit_code = main(
        ["load", served().url, "--request", "/work?size=1024", "--requests", "110", "--out", str(tmp_path)]
    )

    printed = capsys.readouterr().out
    assert exit_code == 0
    assert "requests    110 in " in printed
    assert "latency     p50 " in printed
    assert "p90" in printed
    assert "p95" not in printed
    assert re.search(r"^mean        \S+ \S+ of 10, \S+ \S+ of 100, \S+ \S+ of 110$", printed, re.MULTILINE)
    assert "bodies      110 KiB" in printed
    assert "failures    0" in printed
    assert LoadResult.load(out).requests == 110


def test_load_fails_when_requests_fail(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, with the messages; too few requests for any quantile."""
    exit_code = main(["load", served().url, "--request", "/work?status=500", "--requests", "3", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert exit_code == 1
    assert (document["requests"], document["failures"]) == (3, 3)
    assert document["failure_messages"] == ["status 500: boom"]
    assert document["latency_s"] == {"p50": None, "p90": None, "p95": None, "p99": None}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--bind", "10.0.0.5"], "--bind without --expect-workers or --hosts"),
        (["--expect-workers", "1", "--bind", "10.0.0.5"], "--bind '10.0.0.5': expected an address of this machine"),
        (["--request", "POST /", "--body", "absent.json"], "'@absent.json' cannot be read: No such file"),
        (["--header", "no colon"], "header 'no colon': "),
        (["--expect-workers", "1", "--hosts", "absent.toml"], "--expect-workers with --hosts"),
        (["--hosts", "absent.toml"], "absent.toml: cannot be read: No such file"),
        (["--until-errors", "--bind", "10.0.0.5:5557"], "--bind with --until-errors"),
        (["--until-errors", "--telemetry", "telemetry"], "--telemetry with --until-errors"),
    ],
)
def test_values_are_refused_before_anything_is_started_or_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    problem: str,
) -> None:
    """One line names the option; no process was started and no folder made."""
    started: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append("a process"))

    assert main(["load", "http://127.0.0.1:9", "--out", "out", "--telemetry", "measured", *options]) == 2

    assert problem in capsys.readouterr().err
    assert ([], []) == (started, list(tmp_path.iterdir()))


def test_the_path_of_the_url_is_requested(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """As by ab and curl, with its query and without a slash at its end."""
    exit_code = main(["load", f"{served().url}/work?status=500", "--requests", "3", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (exit_code, document["statuses"]) == (1, {"500": 3})


LOGIN = ["--login", "GET /login", "--login", "POST /login name=ann"]


def test_each_user_logs_in_and_keeps_its_session(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Two users have two sessions with the token in each post; the four requests of the logins are in no figure."""
    server = served()
    sent = ["--request", "/private", "--request", "POST /private a=1", "--users", "2", "--requests", "8"]
    exit_code = main(["load", server.url, *LOGIN, *sent, "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (exit_code, document["requests"], document["statuses"]) == (0, 8, {"200": 8})
    counts = send(server.url, "GET", "/private", headers={"Cookie": "sid=1"}).body.decode().split()
    assert len(counts) == 2
    assert sum(map(int, counts)) == 9


def test_an_open_load_logs_in_once(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """All arrivals are of one session."""
    server = served()
    sent = ["--request", "/private", "--rate", "50", "--requests", "5", "--warmup", "2"]
    exit_code = main(["load", server.url, *LOGIN, *sent, "--json"])

    assert (exit_code, json.loads(capsys.readouterr().out)["statuses"]) == (0, {"200": 5})
    assert send(server.url, "GET", "/private", headers={"Cookie": "sid=1"}).body == b"8"


@pytest.mark.long
def test_workers_of_a_load_log_in_too(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Each user of two processes has a session."""
    sent = ["--request", "/private", "--users", "2", "--processes", "2", "--requests", "6"]
    exit_code = main(["load", served().url, *LOGIN, *sent, "--json"])

    assert (exit_code, json.loads(capsys.readouterr().out)["statuses"]) == (0, {"200": 6})


def test_a_redirect_to_a_login_is_a_failure(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a session every response leads to the login page, and none has a latency."""
    exit_code = main(["load", served().url, "--request", "/private", "--requests", "3", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (exit_code, document["failures"], document["latency_s"]["p50"]) == (1, 3, None)
    assert document["failure_messages"] == [
        "status 302 to the login page /accounts/login/, expected the response of a user who is logged in"
    ]


def test_a_login_that_fails_ends_the_load(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the status of the login, and nothing is measured."""
    login = ["--login", "GET /login", "--login", "POST /login name=bob"]
    exit_code = main(["load", served().url, *login, "--request", "/private", "--requests", "3"])

    assert exit_code == 2
    assert "login POST /login: status 302 to the login page /accounts/login/" in capsys.readouterr().err


def test_load_sends_requests_of_any_service_in_turn(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """With their methods, headers and bodies; every status below 400 is as good as 200."""
    server = served()
    posted = ["--request", 'POST /orders {"a": 1}', "--header", "X-Key: k", "--request", "/work"]
    exit_code = main(["load", server.url, *posted, "--requests", "5", "--json"])

    assert exit_code == 0
    assert json.loads(capsys.readouterr().out)["statuses"] == {"201": 3, "200": 2}
    assert get(server.url, "/orders").body.decode().splitlines() == ['application/json k {"a": 1}'] * 3


def test_load_where_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line."""
    exit_code = main(["load", "http://127.0.0.1:1"])

    assert exit_code == 2
    assert capsys.readouterr().err.startswith("placebench load: nothing responds at http://127.0.0.1:1 (")


@pytest.mark.long
def test_ctrl_c_reports_what_was_measured(served: Served, tmp_path: Path) -> None:
    """Exit code 130; what was asked until then is printed and kept, what was under way is in flight."""
    server = served()
    out = tmp_path / "load.json"
    command = [sys.executable, "-m", "placebench", "load", server.url, "--request", "/work?sleep=0.05"]
    options = ["--time", "60", "--json", "--out", str(tmp_path)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
        while int(get(server.url, "/counts").body.split()[0]) < 5:
            time.sleep(0.02)
        load.send_signal(signal.SIGINT)
        printed, said = load.communicate(timeout=30)

    assert load.returncode == 130, said
    assert json.loads(printed)["requests"] >= 4
    assert LoadResult.load(out).in_flight <= 1
    assert "interrupted" in said


def test_a_search_that_cannot_begin_leaves_the_folder_of_the_user(tmp_path: Path) -> None:
    """The folder stays empty, as it was."""
    exit_code = main(
        ["load", "http://127.0.0.1:1", "--slo", "p95 <= 5ms", "--rate", "1", "--time", "1", "--out", str(tmp_path)]
    )

    assert exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_result_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named before anything is sent."""
    (tmp_path / "load.json").write_text('{"mine": 1}')

    assert main(["load", "http://127.0.0.1:1", "--requests", "1", "--out", str(tmp_path)]) == 2
    assert "load.json" in capsys.readouterr().err
    assert (tmp_path / "load.json").read_text() == '{"mine": 1}'
