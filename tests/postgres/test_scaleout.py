"""`placebench lab scaleout`: nginx, two hosts, a primary and one replica, stood up once for all of these tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from placebench.cli import main
from placebench.compare.what.http_request import HEADERS, Reply, send
from placebench.errors import MissingExtraError
from placebench.lab.commands.scaleout import _FAULTS, _watch
from placebench.lab.inventory.seeding import find_topology, migrate
from placebench.lab.reference.api.pipeline import POSITION_HEADER
from placebench.lab.scaleout import cluster as scale_out
from placebench.lab.scaleout.check import FAULTS, ScaleOutCheck, check_scale_out
from placebench.lab.scaleout.cluster import share_cpus, start_hosts
from placebench.runtime.postgres import Server, open_connection
from placebench.runtime.running_server import ServerSpec

Scaled = dict[str, Any]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """Where the command makes its folders; root's servers, which run as another user, have to come through."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def command(scratch: Path) -> Iterator[tuple["subprocess.Popen[str]", Scaled]]:
    """The command in the foreground, and what it printed when everything stood."""
    size = ("--trees", "40", "--hosts", "2", "--replicas", "1", "--port", "0")
    argv = [sys.executable, "-m", "placebench", "lab", "scaleout", *size, "--json"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    began_s = time.monotonic()
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield process, {**json.loads(line), "stood_after_s": time.monotonic() - began_s}
        finally:
            process.kill()


@pytest.fixture
def scaled(command: tuple["subprocess.Popen[str]", Scaled]) -> Scaled:
    return command[1]


def test_it_stands_within_ten_seconds(scaled: Scaled) -> None:
    """From the command to the first response; longer in proportion where more run than there are CPUs."""
    others = os.getloadavg()[0] / (os.cpu_count() or 1)

    assert scaled["stood_after_s"] < 10 * max(1.0, others)


def ask(scaled: Scaled, method: str, path: str, position: str | None = None) -> Reply:
    """One request through nginx."""
    more = {} if position is None else {POSITION_HEADER: position}
    return send(scaled["url"], method, path, headers={**HEADERS, **more})


def position_of(reply: Reply) -> str:
    return dict(reply.headers)[POSITION_HEADER]


@contextmanager
def replay_paused(scaled: Scaled) -> Iterator[None]:
    """The replica gets the log, and does not apply it meanwhile."""
    with open_connection(scaled["databases"]["node1"]) as replica:
        replica.exec_driver_sql("SELECT pg_wal_replay_pause()")
        try:
            yield
        finally:
            replica.exec_driver_sql("SELECT pg_wal_replay_resume()")


def test_a_read_with_the_position_of_a_write_sees_it(scaled: Scaled) -> None:
    """Replica behind: a read without the position is stale, one with it comes from the primary."""
    with replay_paused(scaled):
        written = ask(scaled, "PUT", "/traits/CUSTOM_ONE")
        statuses = [ask(scaled, "GET", "/traits/CUSTOM_ONE", each).status for each in (None, position_of(written))]
    later = ask(scaled, "GET", "/traits/CUSTOM_ONE", position_of(written))

    assert (written.status, statuses, later.status) == (201, [404, 204], 204)


def check(scaled: Scaled, folder: Path, claims: int, *, with_position: bool = True) -> ScaleOutCheck:
    request = find_topology("nested-perfload").request
    url, database_url = scaled["url"], scaled["databases"]["node0"]
    path = folder / "history.jsonl"
    return check_scale_out(url, database_url, request, path, claims=claims, with_position=with_position)


def test_claims_are_read_again_and_none_is_lost(scaled: Scaled, tmp_path: Path) -> None:
    """Four clients at once; nothing else happens, so that no request fails but where a candidate is taken."""
    made = check(scaled, tmp_path, 200)
    history = made.history

    assert (True, 0, 0, 0) == (history.passed, history.stale, history.writes.lost, history.writes.doubled)
    assert history.reads == history.writes.acknowledged > 200
    assert set(made.errors) <= {"PUT 409"}


def test_the_check_finds_stale_reads_and_positions_avoid_them(scaled: Scaled, tmp_path: Path) -> None:
    """While the replica is behind, each read without a position is stale, and none with it."""
    made = []
    for with_position in (False, True):
        written = ask(scaled, "PUT", "/traits/CUSTOM_THREE")
        ask(scaled, "GET", "/traits", position_of(written))  # the replica has caught up: its candidates are free
        with replay_paused(scaled):
            made.append(check(scaled, tmp_path, 4, with_position=with_position).history)
    without, given = made

    assert (without.reads, without.stale, without.passed) == (4, 4, False)
    assert (given.reads, given.stale, given.passed) == (4, 0, True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "exit_code", "loses"), [(["--synchronous"], 0, False), ([], 1, True)], ids=["synchronous", "not"]
)
def test_a_primary_cut_off_and_killed_loses_nothing_where_commits_wait_for_the_replica(
    options: list[str], exit_code: int, loses: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replica is promoted, the former primary rejoins by pg_rewind, all while four clients write and read.

    What the primary alone had is lost otherwise. Takes 8 s or more: a cluster of its own, whose
    primary is cut off for three.
    """
    size = ("--trees", "10", "--hosts", "1", "--port", "0", "--check", "100")
    found = main(["lab", "scaleout", *size, *options, "--fault", "cut-then-kill", "--json"])
    document = json.loads(capsys.readouterr().out)
    history = document["history"]

    assert found == exit_code
    assert (history["writes"]["lost"] > 0, history["writes"]["doubled"]) == (loses, 0)
    assert [what for _, what in document["events"]] == [
        "node0, the primary, cut off from nodes",
        "node0, the primary, killed",
        "node1 is the primary",
        "node0 is reached by nodes again",
        "node0 is a replica",
    ]


def test_the_command_knows_every_fault() -> None:
    """Its help names them without loading the check."""
    assert list(_FAULTS) == list(FAULTS)


def test_a_host_has_the_cpus_that_it_is_started_on(server: Server) -> None:
    """All of its processes, and nobody else."""
    before, first = os.sched_getaffinity(0), min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        (host,) = start_hosts(ServerSpec(database_url=server.url, variant="dedup"), [frozenset({first})], stack)
        pids = [host.pid, *host.worker_pids()]

        assert [os.sched_getaffinity(pid) for pid in pids] == [{first}] * 2
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("count", "hosts", "found"), [(8, 3, [{0, 1}, {2, 3}, {4, 5}]), (3, 4, [set()] * 4), (2, 1, [set()])]
)
def test_hosts_share_cpus_where_there_are_enough(
    count: int, hosts: int, found: list[set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight for three hosts: two each, and two for nginx and the databases; of two CPUs none is set apart."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))

    assert share_cpus(hosts) == found


def test_what_is_no_position_is_refused(scaled: Scaled) -> None:
    """A position that the service cannot read would not be a promise."""
    assert [ask(scaled, "GET", "/traits", each).status for each in ("", "1", "0/1; DROP", "0/FFFFFFFFF")] == [400] * 4


def test_hosts_read_from_the_replica_and_write_to_the_primary(scaled: Scaled) -> None:
    """By pg_stat_activity, where each uWSGI worker has connections."""
    for method in ("PUT", "GET"):
        for _ in range(4):
            ask(scaled, method, "/traits/CUSTOM_TWO")

    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'placement' AND application_name = ''"
    counts = {}
    for name, url in scaled["databases"].items():
        with open_connection(url) as connection:
            recovering = connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar()
            counts[name] = (recovering, connection.exec_driver_sql(query).scalar())

    assert counts == {"node0": (False, 2), "node1": (True, 2)}


def test_reads_go_to_the_other_host_when_one_is_killed(scaled: Scaled) -> None:
    """nginx sends a read again that met the dead host; none fails."""
    os.killpg(scaled["pids"]["host1"], signal.SIGKILL)

    assert {ask(scaled, "GET", "/traits").status for _ in range(20)} == {200}


@pytest.mark.long
def test_nothing_is_left_after_kill_9_of_the_command(
    command: tuple["subprocess.Popen[str]", Scaled],
    scratch: Path,
    runs: Callable[[int], bool],
    eventually: Callable[[Callable[[], bool]], bool],
) -> None:
    """nginx, host, both PostgreSQL and all folders are gone within 5 s."""
    process, scaled = command
    assert list(scratch.iterdir())
    process.kill()

    assert eventually(lambda: not any(map(runs, scaled["pids"].values())) and not list(scratch.iterdir()))


@pytest.mark.long
def test_a_part_that_ended_before_the_first_look_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """While the others started, for example."""
    looks = iter([False, False, True])
    with scale_out.ScaleOut(ServerSpec(database_url="", variant="dedup"), migrate, hosts=2, replicas=0) as scaled:
        scaled.kill_host(0)
        _watch(scaled, lambda _seconds: next(looks))

    assert [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()] == ["host1 has ended"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--replicas", "0", "--synchronous"], "no replica"),
        (["--fault", "kill-host"], "--check N"),
        (["--check", "1", "--fault", "kill-replica", "--replicas", "0"], "no replica"),
        (["--namespaces", "--check", "1", "--fault", "cut-hosts"], "--namespaces with --fault cut-hosts"),
        (["--namespaces", "--write", "compose", "--out", "plan"], "--namespaces with --write"),
        (["--hosts", "0"], "from 1 to 16"),
        (["--variant", "quick"], "'quick'"),
    ],
)
def test_a_wrong_argument_is_one_line(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 before anything is started."""
    assert main(["lab", "scaleout", *options]) == 2

    lines = capsys.readouterr().err.strip().splitlines()
    assert said in lines[-1]


def test_a_missing_nginx_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra has it."""
    monkeypatch.setattr(scale_out, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(MissingExtraError, match=r"placebench\[scaleout\]"):
        scale_out.nginx_program()


@pytest.mark.long
def test_a_study_serves_the_same_responses_by_every_number_of_hosts_and_replicas(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], documented: Callable[[str], set[str]]
) -> None:
    """With a replica the primary has nothing to do for a read. Takes some seconds: a cluster of its own."""
    small = ["--trees", "2", "-n", "1", "--requests", "20", "--sizes", "1x0,2x1", "--users", "2"]
    argv = ["lab", "study", "scaleout", *small, "--server", server.url, "--json", "-o", str(tmp_path / "run")]
    assert main(argv) == 0
    alone, scaled = json.loads(capsys.readouterr().out)["rows"]

    assert documented("scaleout") <= set(alone)
    assert [(row["hosts"], row["replicas"], row["reason"]) for row in (alone, scaled)] == [(1, 0, None), (2, 1, None)]
    assert alone["primary_cpu_s"] > 10 * scaled["primary_cpu_s"]
    assert min(scaled["nginx_cpu_s"], scaled["hosts_cpu_s"], scaled["replicas_cpu_s"]) > 0 == alone["replicas_cpu_s"]
