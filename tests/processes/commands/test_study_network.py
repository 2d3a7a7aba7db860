"""`placebench study network` with commands: their connections pass the links, and what fails is named."""

import json
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placebench.cli import main

CLIENT = """
import os, socket, sys
from urllib.parse import urlsplit
where, times = sys.argv[1], int(sys.argv[2])
address = urlsplit(os.environ["ECHO_URL"]).netloc if where == "-" else where
host, _, port = address.rpartition(":")
with socket.create_connection((host, int(port))) as connection:
    for _ in range(times):
        connection.sendall(b"ping")
        assert connection.recv(4) == b"ping"
"""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that sends back what it receives; the folder has client.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "client.py").write_text(CLIENT)

    def respond(connection: socket.socket) -> None:
        with connection:
            while received := connection.recv(4096):
                connection.sendall(received)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=respond, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def study(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON document, and what was printed besides."""
    code = main(["study", "network", "-q", "--json", "-n", "1", *words])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def command(*words: str) -> list[str]:
    return ["--", sys.executable, "client.py", *words]


@pytest.mark.long
def test_each_round_trip_waits_for_the_links_in_a_row(
    echo: str, capsys: pytest.CaptureFixture[str], documented: Any
) -> None:
    """Five and one round trips at 0 ms, at 40 ms, and through a jump box of 20 + 40 ms: the same bytes each time."""
    axis = ["--axis", "times=5,1", "--link", echo, "--latency-ms", "0,40,20+40"]
    code, document, _ = study(capsys, *axis, *command("{address}", "{times}"))
    rows = {(row["variant"], row["link"]): row for row in document["rows"]}

    assert 0 == code
    assert documented("study network") | {"reason"} == set(document["rows"][0])
    assert [("5", "0"), ("5", "40"), ("5", "20+40"), ("1", "0"), ("1", "40"), ("1", "20+40")] == list(rows)
    for (times, link), row in rows.items():
        assert (int(times), 1, 4 * int(times), 4 * int(times)) == (
            row["round_trips"],
            row["connections"],
            row["bytes_sent"],
            row["bytes_received"],
        )
        assert row["elapsed_s"] >= int(times) * row["round_trip_ms"] / 1e3
        assert {"0": 0.0, "40": 40.0, "20+40": 60.0}[link] == row["latency_ms"]
    assert rows["1", "40"]["ratio"] is not None
    assert rows["5", "40"]["ratio"] is None


def test_a_variable_with_the_address_leads_through_the_link(
    echo: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program reads ECHO_URL; its user and path stay."""
    monkeypatch.setenv("ECHO_URL", f"echo://{echo}/path")
    code, document, _ = study(capsys, "--link", echo, "--latency-ms", "0", *command("-", "3"))

    assert (0, [3]) == (code, [row["round_trips"] for row in document["rows"]])


def test_a_variant_that_fails_is_named_and_the_others_are_measured(
    echo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """int("many") fails; "2" is measured."""
    words = ["--axis", "times=2,many", "--link", echo, "--latency-ms", "0", *command("{address}", "{times}")]
    code, document, _ = study(capsys, *words)
    measured, failed = document["rows"]

    assert 0 == code
    assert (2, None) == (measured["round_trips"], measured["reason"])
    assert ("many", None) == (failed["variant"], failed["elapsed_s"])
    assert "exit code 1" in failed["reason"]
    assert "invalid literal for int" in failed["reason"]


def test_a_command_that_passes_the_link_by_is_refused(echo: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the address of the server itself: one line says what to do."""
    code, _, said = study(capsys, "--link", echo, "--latency-ms", "0", *command(echo, "1"))

    assert 2 == code
    assert f"opened no connection to {echo} through the link" in said
    assert "{address}" in said


def test_what_is_prepared_is_prepared_before_each_measurement(
    echo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once for warming up, and once for each of two links."""
    note = f"echo ready >> {shlex.quote(str(tmp_path / 'prepared'))}"
    options = ["--link", echo, "--latency-ms", "0,1", "--prepare", note]
    code, _, _ = study(capsys, *options, *command("{address}", "1"))

    assert (0, "ready\n" * 3) == (code, (tmp_path / "prepared").read_text())


def test_a_command_that_does_not_end_is_given_up(echo: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After the seconds of --timeout, which the message names."""
    options = ["--link", echo, "--latency-ms", "0", "--timeout", "0.5"]
    code, _, said = study(capsys, *options, "--", "sleep", "60")

    assert 2 == code
    assert "did not end in 0.5 s: give it more time with --timeout" in said


def test_an_interrupted_study_goes_on(echo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is measured is not measured again: the second session has one measurement to make."""
    words = ["--link", echo, "--latency-ms", "0,1", "--out", str(tmp_path / "run"), *command("{address}", "1")]
    study(capsys, *words)
    path = tmp_path / "run" / "measurements.jsonl"
    first, *_ = path.read_text().splitlines(keepends=True)
    path.write_text(first)
    code, document, _ = study(capsys, "--resume", *words)

    assert (0, 2, first) == (code, len(document["rows"]), path.read_text().splitlines(keepends=True)[0])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--", "true"], "what does the command talk to?"),
        (["--link", "nowhere", "--", "true"], "expected HOST:PORT, or the URL"),
        (["--link", "127.0.0.1:1", "--between", "client", "--", "true"], "--between is for an application"),
        (["--link", "127.0.0.1:1", "--request", "/", "--", "true"], "--request is for an application"),
        (["--prepare", "true"], "--prepare is for a command"),
        (["--link", "127.0.0.1:1", "--axis", "url=a,b", "--", "echo", "{url}"], "that of the link"),
        (["--link", "127.0.0.1:1", "--setup", "true", "--", "true"], "leave one out"),
        (["--link", "127.0.0.1:1", "--latency-ms", "0,400", "--", "true"], "expected a number from 0 to 370"),
        (["--template-db", "sqlite:///a.db", "--", "true"], "has no network"),
        ([], "[tool.placebench.app]"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    words: list[str], reason: str, echo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each names what was seen and what was expected; nothing is run."""
    try:
        code, _, said = study(capsys, *words)
    except SystemExit as ended:
        code, said = int(ended.code or 0), capsys.readouterr().err

    assert 2 == code
    assert reason in said
