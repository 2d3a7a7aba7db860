"""What `lab study workers` says, from measurements that a reader can check by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_survey import measured_again, study_head
from reports import document_of

from placebench.cli import parser
from placebench.commands import options
from placebench.compare.keep.records import Measurement
from placebench.lab.studies.commands import WorkersOptions
from placebench.lab.studies.workers import _workloads
from placebench.report import write_report

MIB = 1 << 20
MIXES = ((1, 4), (4, 1))


def values(processes: int, client_cpu_s: float) -> dict[str, Any]:
    """Threads serve 40 requests in 2 s and 50 MiB; processes in 1 s and 100 MiB, of which they lose 8."""
    elapsed_s, size = 2.0 / min(processes, 2), (50 if processes == 1 else 100) * MIB
    return {
        "elapsed_s": elapsed_s,
        "requests": 40,
        "throughput_per_s": 40 / elapsed_s,
        "latency_s": elapsed_s / 10,
        "worker_cpu_s": 1.6,
        "backend_cpu_s": 0.4,
        "client_cpu_s": client_cpu_s,
        "pss_bytes": size,
        "uss_bytes": size // 2,
        "rss_bytes": size * 2,
        "unshared_bytes": 8 * MIB,
        "memory": [[0.0, size, size, size, 0], [0.5, size, size, size, 8 * MIB]],
    }


@pytest.fixture
def document(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A function that gives the document of a run of the query and of the state, with users as busy as requested."""

    def made(client_cpu_s: float) -> dict[str, Any]:
        points = [
            {"workload": workload, "processes": processes, "threads": threads}
            for workload in ("query", "state")
            for processes, threads in MIXES
        ]
        study_head(
            "workers",
            variants=["tuned"],
            settings={"users": 4, "variant": "tuned", "repeats": 1, "points": points, "impossible": []},
        ).save(tmp_path / "run.json")
        lines = [Measurement(point, 0, values(int(str(point["processes"])), client_cpu_s)) for point in points]
        return document_of(measured_again(tmp_path, lines))

    return made


def test_processes_are_compared_with_as_many_threads(document: Callable[..., dict[str, Any]]) -> None:
    """40 requests in 1 s against 2 s, in 100 MiB against 50: twice of both."""
    assert (
        "The full query: 4 processes serve 40.0 /s in 100 MiB, 4 threads 20.0 /s in 50.0 MiB: "
        "2.00 × the throughput for 2.00 × the memory." == document(0.1)["headline"]
    )


def test_a_row_counts_the_cpu_of_a_request(document: Callable[..., dict[str, Any]]) -> None:
    """1.6 s of workers and 0.4 s of backends over 40 requests are 50 ms; one repeat has no interval."""
    row = document(0.1)["rows"][0]

    assert (0.05, 2.0, 20.0, 50 * MIB, None) == tuple(
        row[name] for name in ("cpu_s_per_request", "cpu_s", "throughput_per_s", "pss_bytes", "elapsed_low_s")
    )
    assert [[0.0, 0], [0.5, 8 * MIB]] == row["unshared_over_time"]


def test_users_that_may_have_been_the_limit_are_named(document: Callable[..., dict[str, Any]]) -> None:
    """0.8 s of CPU are 80 % of a core in the second that the processes took, and 40 % in the threads' two."""
    assert ["The load generator took at most 10 % of a core, so it was not the limit."] == [
        remark.replace("10.0", "10") for remark in document(0.1)["summary"]
    ]
    assert document(0.8)["summary"][0].endswith("the limit: the full query by 4 x 1, shared state by 4 x 1.")


def test_the_page_shows_un_shared_memory_over_time(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """For the state alone; throughput against memory for each workload."""
    document(0.1)
    page = write_report(tmp_path).read_text()

    assert 1 == page.count("<h2>Memory un-shared by copy-on-write, shared state</h2>")
    assert 2 == page.count("throughput against memory</h2>")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ("compute", "query", "state", "state-frozen")),
        (["--preset", "quick"], ("compute", "query", "state")),
        (["--workloads", "network,query"], ("network", "query")),
    ],
)
def test_the_workloads_are_those_that_the_help_names(words: list[str], expected: tuple[str, ...]) -> None:
    """The three others are measured where they are named."""
    given = options.read(WorkersOptions, parser().parse_args(["lab", "study", "workers", *words]))

    assert _workloads(given) == expected
