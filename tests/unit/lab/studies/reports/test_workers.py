"""What `lab study workers` says, from measurements that a reader can check by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_survey import measured_again, study_head, write_survey
from reports import document_of

from placebench.compare.keep.records import Measurement
from placebench.lab.studies.reports.workers import _laws
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


def test_the_largest_number_of_processes_checks_the_law_of_the_others(tmp_path: Path) -> None:
    """20 /s of one process and σ 0.25: 2, 3 and 4 do 32, 40 and 45.7; 6 are extrapolated to 53.3 and measured at 50."""
    folder = write_survey(tmp_path / "run", "workers", repeats=2)
    rates = {1: 20.0, 2: 32.0, 3: 40.0, 4: 320 / 7, 6: 50.0}
    points = [{"workload": "query", "processes": number, "threads": 1} for number in rates]
    made = [
        Measurement(point, repeat, {**values(2, 0.1), "throughput_per_s": rate * (1 + repeat / 1000)})
        for repeat in range(2)
        for point, rate in zip(points, rates.values(), strict=True)
    ]

    (law,) = document_of(measured_again(folder, made, points=points))["scalability"]

    assert ([1, 2, 3, 4], 8, "processes", 6) == tuple(law[name] for name in ("fitted", "n", "of", "checked_at"))
    assert pytest.approx([20, 0.25, 53.33, 50], rel=0.01) == [
        law[name] for name in ("lambda_per_s", "sigma", "predicted_per_s", "measured_per_s")
    ]
    assert law["predicted_per_s_low"] > 50  # the law says what was not the case
    assert "Universal Scalability Law" in write_report(folder).read_text()


def test_the_published_laws_are_those_of_the_raw_file() -> None:
    """Each row of docs/lab/workers.md is fitted anew to the measurements in docs/results."""
    docs = Path(__file__).parents[5] / "docs"
    raw = json.loads((docs / "results" / "scalability.json").read_text())
    made = [Measurement(**each) for each in raw["measurements"] if each["invalid"] is None]
    points = {json.dumps(each.point): each.point for each in made}.values()
    page = (docs / "lab" / "workers.md").read_text(encoding="utf-8")

    laws = list(_laws((point, [each for each in made if each.point == point]) for point in points))

    assert ["compute", "query"] == sorted(law["workload"] for law in laws)
    assert [row for row in map(published_law, laws) if row not in page] == []


def published_law(law: dict[str, Any]) -> str:
    """As the page has it."""

    def interval(name: str, digits: int) -> str:
        middle, low, high = (number(law[name + end], digits) for end in ("", "_low", "_high"))
        return f"{middle} [{low}, {high}]"

    def number(value: float | None, digits: int) -> str:
        return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")

    digits = {"lambda_per_s": 1, "sigma": 2, "kappa": 3, "peak": 1, "predicted_per_s": 0}
    cells = (f"`{law['workload']}`", law["n"], *(interval(*each) for each in digits.items()))
    return f"| {' | '.join(map(str, cells))} | {number(law['measured_per_s'], 0)} |"
