"""`placebench link`: real programs behind an emulated link, and what it counts beside what they send."""

import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.runtime.ports import free_port

CLIENT = """
import socket, sys, time
host, port = sys.argv[1].rsplit(":", 1)
began = time.monotonic()
with socket.create_connection((host, int(port))) as connection:
    for message in (b"ab", b"abc", b"abcde"):
        connection.sendall(message)
        answer = b""
        while len(answer) < 2 * len(message):
            answer += connection.recv(4096)
print(time.monotonic() - began)
sys.exit(4)
"""


class _Doubling(socketserver.BaseRequestHandler):
    """Answers each message with twice as many bytes."""

    def handle(self) -> None:
        while message := self.request.recv(4096):
            self.request.sendall(message * 2)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """HOST:PORT of a server that doubles what it gets."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Doubling) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_command_behind_a_link(address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Three messages of 10 bytes in all: three round trips of 50 ms and that of the connect; its own exit code."""
    page = tmp_path / "link.html"
    command = [sys.executable, "-c", CLIENT, "{address}"]

    code = main(["link", address, "--latency", "50ms", "--json", "-q", "-o", str(page), "--", *command])

    said = capfd.readouterr()
    found = json.loads(said.out)
    assert 4 == code
    expected = {"connections": 1, "round_trips": 3, "bytes_sent": 10, "bytes_received": 20, "latency_s": 0.05}
    expected |= {"loss_percent": 0, "proxies": 1}
    assert expected == {name: found[name] for name in expected}
    taken_s = float(said.err.splitlines()[0])
    assert 0.2 <= taken_s <= found["elapsed_s"]
    assert found["time_over_latency"] == pytest.approx(found["elapsed_s"] / 0.05)
    assert found["waiting_share"] == pytest.approx(0.2 / found["elapsed_s"])
    assert 0 < found["cpu_s"] < found["elapsed_s"]
    assert [10, 20] == [sum(found["trace"][name]) for name in ("sent", "received")]
    assert "A round trip takes 50.0 ms more." in page.read_text()
    assert "round trips</th><td>3" in page.read_text()


def test_a_module_of_the_user_takes_the_place_of_none_of_ours(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder may hold a copy.py, a queue.py and a json.py."""
    for name in ("copy", "queue", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the standard library')\n")
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["link", address, "--", "true"])


def test_the_share_of_waiting_has_the_time_of_lost_packets(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Of six chunks that pass, with the same half of all packets lost each time, seven packets are sent once more."""
    command = [sys.executable, "-c", CLIENT, "{address}"]

    main(["link", address, "--loss", "50", "--json", "-q", "--", *command])

    found = json.loads(capfd.readouterr().out)
    assert (3, 50) == (found["round_trips"], found["loss_percent"])
    assert found["waiting_share"] == pytest.approx(7 * 0.2 / found["elapsed_s"])


def test_a_url_leads_through_the_link_and_its_password_is_not_shown(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command gets the whole URL, with the address of the link in place of its own."""
    show = [sys.executable, "-c", "import sys; print(sys.argv[1])", "{url}"]

    assert 0 == main(["link", f"postgresql://me:secret-word@{address}/shop?sslmode=disable", "--", *show])

    said = capfd.readouterr()
    url = said.out.splitlines()[0]
    assert url.startswith("postgresql://me:secret-word@127.0.0.1:")
    assert url.endswith("/shop?sslmode=disable")
    assert address not in url
    assert f"leads to {address}" in said.err
    assert "secret-word" not in said.err


def test_without_a_command_it_stays_until_it_is_interrupted(address: str) -> None:
    """A second program uses the port that was asked for; Ctrl-C prints what has passed, and is not a failure."""
    port = free_port()
    command = [sys.executable, "-m", "placebench", "link", address, "--port", str(port), "--json"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as link:
        assert link.stderr is not None
        assert f"127.0.0.1:{port} leads to {address}" in link.stderr.readline()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"ab")
            assert b"abab" == connection.recv(4096)
        link.send_signal(signal.SIGINT)
        out, _ = link.communicate(timeout=60)

    assert 0 == link.returncode
    assert (1, 2, 4) == tuple(json.loads(out)[name] for name in ("round_trips", "bytes_sent", "bytes_received"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "TARGET"),
        (["nonsense"], 2, "'nonsense': expected HOST:PORT"),
        (["--latency", "12", "127.0.0.1:5432"], 2, "'12': expected a duration with its unit, such as 180ms"),
        (["127.0.0.1:5432", "extra"], 2, "'extra'"),
        (["127.0.0.1:5432", "--", "no-such-program"], 127, "'no-such-program'"),
        (["127.0.0.1:1"], 2, "127.0.0.1:1 cannot be reached"),
    ],
)
def test_bad_input(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with what was seen and expected."""
    assert code == main(["link", *arguments])
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_port_that_is_in_use_is_named(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The port of the server itself."""
    port = address.rpartition(":")[2]

    assert 2 == main(["link", address, "--port", port])
    assert f"port {port} of 127.0.0.1 cannot be listened at" in capsys.readouterr().err
