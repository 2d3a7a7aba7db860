"""`placebench lab study network` on a real PostgreSQL: counts are exact, waiting is added."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from placebench.cli import main
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.what.variants import read_variant
from placebench.errors import LoadError
from placebench.lab.inventory.data_sets import SeededData
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.studies.network_jobs import NetworkStudy
from placebench.lab.studies.study import StudySetup
from placebench.runtime.postgres import Server


def asked(server: Server, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    """The rows of a small run."""
    small = ["--trees", "2", "-n", "1", "--json", "--server", server.url]

    assert 0 == main(["lab", "study", "network", *small, *options])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


@pytest.mark.long
def test_a_variant_waits_a_latency_for_each_of_its_turnarounds(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], documented: Callable[[str], set[str]]
) -> None:
    """The same bytes and turnarounds at 0 and at 20 ms; naive makes more of both than tuned, and waits for each."""
    rows = asked(server, capsys, "--latency-ms", "0,20", "--out", str(tmp_path / "run"))

    naive, naive_away, tuned, tuned_away = rows
    assert documented("network") <= set(naive)
    for near, away in ((naive, naive_away), (tuned, tuned_away)):
        for name in ("round_trips", "bytes_sent", "bytes_received", "body_bytes"):
            assert near[name] == away[name] > 0
        assert away["elapsed_s"] >= away["idle_s"] >= away["round_trips"] * 0.020
    assert naive["round_trips"] > tuned["round_trips"]
    assert pytest.approx(0.020 * (naive["round_trips"] - tuned["round_trips"])) == tuned_away["predicted_growth_s"]
    assert naive["cpu_s"] > naive["client_cpu_s"] > 0
    assert (tmp_path / "run" / "index.html").is_file()


@pytest.mark.long
def test_compressed_answers_are_fewer_bytes_between_client_and_service(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One connection and one turnaround a request either way; gzip takes a fraction of the bytes."""
    options = ("--between", "client", "--compress", "--variants", "tuned", "--latency-ms", "5", "--proxies", "2")
    plain, packed = asked(server, capsys, *options, "--out", str(tmp_path / "run"))

    assert ("tuned", "tuned, gzip") == (plain["variant"], packed["variant"])
    assert {(1, 1)} == {(row["connections"], row["round_trips"]) for row in (plain, packed)}
    assert packed["bytes_received"] < plain["bytes_received"] / 2


@pytest.mark.long
def test_many_clients_at_once_wait_beside_each_other(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four, more than a second away: the counts are of all, and the time is less than two after the other take."""
    options = ("--between", "client", "--compress", "--variants", "tuned", "--latency-ms", "360", "--clients", "4")
    plain, packed = asked(server, capsys, *options, "--proxies", "3", "--out", str(tmp_path / "run"))

    for row in (plain, packed):
        assert (4, 4) == (row["connections"], row["round_trips"])
        assert (1 + 3) * 0.36 <= row["elapsed_s"] < 2 * (1 + 3) * 0.36
        assert (None, None) == (row["idle_share"], row["round_trips_published"])
    assert packed["bytes_received"] < plain["bytes_received"] / 2
    assert "by each of 4 clients at once" in (tmp_path / "run" / "index.html").read_text()


@pytest.mark.long
def test_small_reads_and_fixed_waits_are_jobs_too(server: Server, tmp_path: Path) -> None:
    """Small reads, 250 ms of waiting in the database, and both, where one request of five waits; a link that drops is
    one line, and begun anew after it."""
    topology = find_topology("nested-perfload", trees=2, seed=1)
    variants = (read_variant("tuned"),)
    tiny = NetworkStudy(variants, (0.0,), topology.request, job="tiny", operations=6)
    waits = NetworkStudy(variants, (0.0,), topology.request, job="waits")
    mixed = NetworkStudy(variants, (0.0,), topology.request, job="mixed", operations=5)
    point = {"variant": "tuned", "latency_ms": 0.0}

    def setup(name: str) -> StudySetup:
        folder = claim_folder(tmp_path / name)
        return StudySetup(SeededData(server, topology, folder), folder)

    with tiny.spec(repeats=1).prepare(setup("tiny")) as measure:
        few = measure(point, 0)
    with mixed.spec(repeats=1).prepare(setup("mixed")) as measure:
        one_waits = measure(point, 0)
    with waits.spec(repeats=1).prepare(setup("waits")) as measure:
        waited = measure(point, 0)
        for proxy in proxies():
            os.kill(proxy, signal.SIGKILL)
        with pytest.raises(LoadError, match=r"the link dropped: its process is gone[^\n]*$"):
            measure(point, 1)
        anew = measure(point, 1)

    assert few["round_trips"] % 6 == 0
    assert min(waited["elapsed_s"], anew["elapsed_s"], one_waits["elapsed_s"]) >= 0.25
    assert one_waits["round_trips"] > few["round_trips"]


def proxies() -> list[int]:
    """The processes of the links that this process has up."""
    below = psutil.Process().children(recursive=True)
    return [each.pid for each in below if "placebench.runtime.network.proxy" in each.cmdline()]


TRIPS = {
    "http": {"connection": 8, "keep-alive": 5, "pipelining": 2},
    "rows": {"insert": 6, "pipeline": 1, "multi-row": 3, "copy": 4},
    "walk": {"loop": 4, "recursive": 1, "function": 1},
}
"""Of four requests, rows or steps, handshakes, BEGIN and COMMIT included; a pipeline is a transaction by itself."""


@pytest.mark.long
@pytest.mark.parametrize("job", TRIPS)
def test_a_protocol_has_its_own_round_trips(
    job: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many at 0 and at 10 ms, and the time grows by a latency for each."""
    pytest.importorskip("granian" if job == "http" else "psycopg")
    options = ("--job", job, "--operations", "4", "--latency-ms", "0,10", "--out", str(tmp_path / "run"))
    rows = asked(server, capsys, *options)

    for latency_ms in (0, 10):
        there = [row for row in rows if row["latency_ms"] == latency_ms]
        assert TRIPS[job] == {row["variant"]: row["round_trips"] + row["connections"] for row in there}
        assert all(row["elapsed_s"] >= TRIPS[job][row["variant"]] * latency_ms / 1e3 for row in there)
