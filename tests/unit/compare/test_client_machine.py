"""A client on another machine: this one through a real sshd on loopback, which is seen from there at 127.0.0.3.

the test ──starts──▶ servers at 127.0.0.3
    └──ssh──▶ sshd ──▶ client process ──HTTP──▶ the servers
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
import pytest
from loopback_sshd import write_hosts

from placebench.cli import main
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.load import client_machine
from placebench.compare.load.client_machine import ClientMachine, find_client
from placebench.compare.load.client_process import body_file
from placebench.compare.load.clients import HttpClient, http_client
from placebench.errors import HostError, LoadError
from placebench.lab.placement_api import placement_workload
from placebench.meters.remote_hosts import RemoteHost
from placebench.runtime.line_process import line_process
from placebench.runtime.supervisor import ChildSpec

pytestmark = pytest.mark.processes

APP = """\
import os, pathlib

def application(environ, start_response):
    pathlib.Path(os.environ["SEEN"], environ["HTTP_HOST"].partition(":")[0]).touch()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(sum(range(20_000))).encode()]
"""
PLAN = """\
[tool.placebench]
database = "none"
request = "/"
[tool.placebench.app]
app = "app:application"
env = { SEEN = "SEEN_FOLDER" }
[tool.placebench.variants.one]
[tool.placebench.variants.two]
"""


@pytest.fixture
def host(ssh_host: RemoteHost, tmp_path: Path) -> RemoteHost:
    """The machine that the client is on, with a mark that its processes have."""
    options = (*ssh_host.ssh_options, "-b", "127.0.0.3")
    return msgspec.structs.replace(ssh_host, ssh_options=options, python=f"MARK={tmp_path} {sys.executable}")


@pytest.fixture
def options(host: RemoteHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a small comparison in the current folder, with its client on that machine."""
    (tmp_path / "seen").mkdir()
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "pyproject.toml").write_text(PLAN.replace("SEEN_FOLDER", str(tmp_path / "seen")))
    monkeypatch.chdir(tmp_path)
    hosts = write_hosts(tmp_path / "hosts.toml", host, f'roles = ["load"]\npython = "{host.python}"')
    return ["-n", "1", "--rounds", "1", "-o", "run", "--client-host", "here", "--hosts", str(hosts)]


@pytest.mark.long
def test_timed_requests_come_from_the_other_machine(options: list[str]) -> None:
    """Servers, on a host, listen where that machine sees it; their CPU is read, and the client's is not measured."""
    assert main(["compare", "one", "two", "--host", "here", *options]) == 3  # one replicate decides nothing
    blocks = [json.loads(line) for line in Path("run/blocks.jsonl").read_text().splitlines()]
    head = json.loads(Path("run/run.json").read_text())
    assert {each["variant"] for each in blocks} == {"one", "two"}
    assert all(each["cpu_s"] > 0 and each["wall_s"] and each["responses"] for each in blocks)
    assert Path("seen/127.0.0.3").exists()
    assert "Timed requests came from another machine, here" in Path("run/index.html").read_text()
    assert (head["manifest"]["client"]["host"], head["settings"]["client_host"]) == ("here", "here")
    assert (head["cost"]["clients_cpu_s"], head["cost"]["servers_cpu_s"] > 0) == (None, True)


def test_responses_come_back_with_the_times(host: RemoteHost, tmp_path: Path) -> None:
    """The body lies in the run's folder here, once."""
    machine = find_client("here", host)
    with ExitStack() as stack:
        url = stack.enter_context(_serving(b"HTTP/1.0 200 OK\r\n\r\n0123456789"))
        client = stack.enter_context(http_client(claim_folder(tmp_path / "run"), machine))
        driven = client.drive(url, placement_workload("/x"), times=2)

    assert (len(driven.wall_s), driven.failures) == (2, [])
    assert body_file(tmp_path / "run" / "responses", driven.digests[0]).read_bytes() == b"0123456789"
    assert 0 < machine.round_trip_s < 1


@pytest.mark.parametrize("end", ["closed", "cut"])
def test_the_client_there_ends_with_the_connection(
    end: str, host: RemoteHost, tmp_path: Path, eventually: Callable[..., bool]
) -> None:
    """It ends in the middle of a request that gets no response, too."""
    machine = ClientMachine("here", host, "127.0.0.3", 0.0)
    failed: list[LoadError] = []

    def drive() -> None:
        try:
            client.drive(url, placement_workload("/x"))
        except LoadError as error:
            failed.append(error)

    with ExitStack() as stack:
        url = stack.enter_context(_serving(b""))
        process = stack.enter_context(machine.process(tmp_path / "client.log"))
        client = HttpClient(process, tmp_path)
        thread = threading.Thread(target=drive)
        thread.start()
        assert eventually(lambda: any(each.net_connections() for each in _marked(tmp_path)))
        if end == "cut":
            os.kill(process.pid, signal.SIGKILL)
            thread.join(60)
            assert "the connection to client host here ended" in str(failed[0])
    thread.join(60)

    assert not thread.is_alive()
    assert eventually(lambda: not _marked(tmp_path))


def test_the_client_ends_by_itself_when_nothing_comes(tmp_path: Path) -> None:
    """As after a cut without an end; no request under way is cut short."""
    code = "from placebench.compare.load import client_process as p; p._SILENCE_S = 1; p.main()"
    with (
        _serving(b"HTTP/1.0 200 OK\r\n\r\n", after_s=1.2) as url,
        line_process(ChildSpec("client", [sys.executable, "-c", code], pipes=True), gone="gone") as process,
    ):
        driven = HttpClient(process, tmp_path).drive(url, placement_workload("/x"))
        with pytest.raises(LoadError, match="gone"):
            process.read()

    assert (len(driven.wall_s), driven.failures) == (1, [])


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("no-such-python", "no-such-python"),
        ('echo \'{"placebench": "0.0.1"}\' #', "placebench 0.0.1 is on web2"),
        (f"SSH_CONNECTION='203.0.113.5 1 127.0.0.1 22' {sys.executable}", "sees this machine as 203.0.113.5"),
    ],
)
def test_a_client_host_that_cannot_be_used_is_one_line(
    python: str, message: str, host: RemoteHost, tmp_path: Path
) -> None:
    """No Python there, another version, an address translation in between."""
    with pytest.raises(HostError, match=message) as raised:
        find_client("web2", msgspec.structs.replace(host, python=python))

    assert "\n" not in str(raised.value)


def test_what_has_no_client_elsewhere_leaves_no_run(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A client host not in the file; a server that listens where it likes; a workload that is a program."""
    assert main(["compare", "one", "two", *options, "--client-host", "web9"]) == 2
    plan = Path("pyproject.toml")
    plan.write_text(plan.read_text().replace('request = "/"', 'workload = "app:use"'))
    assert main(["compare", "one", "two", *options]) == 2

    plan.write_text(PLAN.replace('app = "app:application"', 'command = "serve {port}"'))
    assert main(["compare", "one", "two", *options]) == 2

    host, workload, command = capsys.readouterr().err.splitlines()
    assert "no host 'web9'" in host
    assert "the command of one has no {host}" in command
    assert "workload" in workload
    assert not Path("run").exists()


def test_a_port_that_is_not_reached_is_said(host: RemoteHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall: before anything is measured."""
    monkeypatch.setattr(client_machine, "_listening", _closed_port)

    with pytest.raises(HostError, match=r"client host web2 cannot connect to this machine at 127\.0\.0\.3: Connection"):
        find_client("web2", host)


@contextmanager
def _closed_port(_name: str, address: str) -> Iterator[int]:
    with socket.create_server((address, 0)) as closed:
        port = closed.getsockname()[1]
    yield port


@contextmanager
def _serving(response: bytes, *, after_s: float = 0.0) -> Iterator[str]:
    """The URL of a server that sends this response to each request; empty: it never responds."""
    with socket.create_server(("127.0.0.3", 0)) as listening:

        def work() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(2**16)
                        threading.Event().wait(after_s)
                        connection.sendall(response)
                        if not response:
                            connection.recv(1)  # until the client is gone

        threading.Thread(target=work, daemon=True).start()
        yield f"http://127.0.0.3:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _marked(mark: Path) -> list[psutil.Process]:
    """The client processes of this test."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("MARK") == str(mark) and "client_process" in " ".join(each.cmdline()):
                found.append(each)
    return found
