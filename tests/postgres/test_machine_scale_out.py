"""`placebench lab scaleout` and `placebench load` with a hosts file: this machine, five times through a real sshd.

lb 127.0.0.2 ──▶ web1 127.0.0.3, web2 127.0.0.4 ──▶ db1 127.0.0.5 ──▶ db2 127.0.0.6
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from placebench.cli import main
from placebench.compare.what.http_request import get
from placebench.meters.remote_hosts import RemoteHost
from placebench.runtime.ports import free_port
from placebench.runtime.postgres import open_connection

ROLES = {"lb": "balancer", "web1": "service", "web2": "service", "db1": "database", "db2": "database"}
SMALL = ["--trees", "20", "--port", "0"]


@pytest.fixture
def hosts(ssh_host: RemoteHost, tmp_path: Path) -> Path:
    """A hosts file; processes on its machines have the mark of this test."""
    return write_hosts(tmp_path / "hosts.toml", ssh_host, ROLES)


def write_hosts(path: Path, host: RemoteHost, roles: Mapping[str, str], more: str = "") -> Path:
    """A hosts file of several machines, each at an address of its own."""
    python = f"MARK={path.parent} {sys.executable}"
    common = f'ssh = "{host.ssh}"\nssh_options = {json.dumps(host.ssh_options)}\npython = "{python}"\n{more}\n'
    tables = (
        f'[hosts.{name}]\nroles = ["{role}"]\naddress = "127.0.0.{number}"\n{common}'
        for number, (name, role) in enumerate(roles.items(), 2)
    )
    path.write_text("\n".join(tables))
    return path


def marked(mark: Path) -> list[int]:
    """The processes on the machines of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARK") == str(mark):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@contextmanager
def stood_up(
    hosts: Path, *options: str, stderr: int | None = None
) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """The command, and what it prints when it is ready."""
    command = [sys.executable, "-m", "placebench", "lab", "scaleout", "--hosts", str(hosts), *SMALL, "--json", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=stderr, text=True, preexec_fn=_with_sigint) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def _with_sigint() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.long
def test_claims_through_the_balancer_are_seen_on_the_replica(
    hosts: Path, eventually: Callable[..., bool], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every write is found in the primary, and every read after it is as new."""
    assert main(["lab", "scaleout", "--hosts", str(hosts), *SMALL, "--synchronous", "--check", "20", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["passed"], made["errors"]) == (True, {})
    assert made["history"]["writes"]["acknowledged"] == made["history"]["reads"] > 20
    assert made["isolation"]["machines"] == {
        "nginx": "lb",
        "host1": "web1",
        "host2": "web2",
        "node0": "db1",
        "node1": "db2",
    }
    assert eventually(lambda: not marked(hosts.parent))


@pytest.mark.long
def test_nothing_is_left_on_the_machines_after_kill_9(hosts: Path, eventually: Callable[..., bool]) -> None:
    """All parts run while the command does, and end within 5 s after it, though it has told them nothing."""
    with stood_up(hosts) as (process, ready):
        assert get(ready["url"], "/").status == 200
        with open_connection(ready["databases"]["node1"]) as connection:
            assert connection.exec_driver_sql("SELECT pg_is_in_recovery(), count(*) FROM resource_providers").one() == (
                True,
                140,
            )
        assert len(marked(hosts.parent)) > len(ROLES)
        process.kill()
        process.wait(60)
        assert eventually(lambda: not marked(hosts.parent))


def test_parts_end_with_the_connection_while_one_starts(tmp_path: Path, eventually: Callable[..., bool]) -> None:
    """An application that takes long to load is gone at once, and so is the process that waits for it."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    spec = {"database_url": "", "module": "slow:application", "environment": {"PYTHONPATH": str(tmp_path)}}
    order = {"order": "host", "given": {"name": "host1", "spec": spec}}
    command = [sys.executable, "-c", "from placebench.lab.scaleout.parts import main; main()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(order)}\n")
        process.stdin.flush()
        below = psutil.Process(process.pid).children
        assert eventually(lambda: any("uwsgi" in each.name() for each in below(recursive=True)))
        running = below(recursive=True)
        process.stdin.close()

        assert process.wait(60) == 1
        assert eventually(lambda: not any(each.is_running() for each in running))


@pytest.mark.long
def test_a_part_that_ends_is_named(hosts: Path) -> None:
    """A replica is reported with its log; nginx, without which nothing is served, ends the command."""
    with stood_up(hosts, stderr=subprocess.PIPE) as (process, ready):
        pids = ready["pids"]
        assert isinstance(pids, dict)
        assert process.stderr is not None
        os.kill(pids["node1"], signal.SIGQUIT)
        reported = next(line for line in process.stderr if "has ended" in line)
        os.kill(pids["nginx"], signal.SIGKILL)
        *_, last = process.stderr

        assert process.wait(60) == 2
    assert "node1 has ended; the end of its log: " in reported
    assert "immediate shutdown" in reported
    assert "nginx ended with exit code -9" in last


@pytest.mark.long
def test_workers_on_other_machines_make_a_load(
    ssh_host: RemoteHost, tmp_path: Path, eventually: Callable[..., bool], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two machines with two workers each send every request of the load, and none of them outlives it.

    No two of them write the master's locustfile to one place. Ctrl-C leaves nothing of what was loaded either.
    """
    shared = Path("/tmp/candidates_closed.py")  # what locust calls it, where TMPDIR is not set
    written_s = shared.stat().st_mtime if shared.exists() else None
    hosts = write_hosts(tmp_path / "hosts.toml", ssh_host, {"one": "load", "two": "load"})
    with stood_up(write_hosts(tmp_path / "stand.toml", ssh_host, ROLES)) as (process, ready):
        before = len(marked(tmp_path))
        load = ["load", ready["url"], "--hosts", str(hosts), "--processes", "2", "--users", "4", "--requests", "40"]
        assert main([*load, "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert (made["requests"], made["failures"], len(made["workers"])) == (40, 0, 4)
        assert eventually(lambda: len(marked(tmp_path)) == before)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert eventually(lambda: not marked(tmp_path))
    assert (shared.stat().st_mtime if shared.exists() else None) == written_s


@pytest.mark.long
@pytest.mark.parametrize(
    ("roles", "more", "says"),
    [
        ({"web": "service", "db": "database"}, "", "expected a database or more, a service or more, 1 balancer"),
        (ROLES, 'user = "me"', "unknown key 'user'"),
        (ROLES, "ports = [1]", "on db1: "),
    ],
)
def test_what_cannot_stand_is_one_line(
    ssh_host: RemoteHost,
    tmp_path: Path,
    roles: dict[str, str],
    more: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Missing roles, a wrong key, and a port that is not to be had."""
    hosts = write_hosts(tmp_path / "hosts.toml", ssh_host, roles, more)
    assert main(["lab", "scaleout", "--hosts", str(hosts), *SMALL, "-q"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("lab scaleout --hosts nowhere.toml", "No such file"),
        ("lab scaleout --hosts 0", "from 1 to 16"),
        ("lab scaleout --hosts HOSTS --replicas 2", "--replicas with a hosts file"),
        ("lab scaleout --hosts HOSTS --check 5 --fault kill-host", "--fault with a hosts file"),
        ("load http://127.0.0.1:PORT --hosts HOSTS", "has the role load"),
        ("load http://127.0.0.1:PORT --hosts HOSTS --expect-workers 2", "--expect-workers with --hosts"),
        ("load http://127.0.0.1:PORT --bind 127.0.0.1:9", "without --expect-workers or --hosts"),
    ],
)
def test_options_that_do_not_go_together(
    hosts: Path, given: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each."""
    words = given.replace("HOSTS", str(hosts)).replace("PORT", str(free_port())).split()
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    assert says in capsys.readouterr().err
