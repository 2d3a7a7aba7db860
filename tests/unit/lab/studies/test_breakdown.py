"""A request taken apart from telemetry written by hand: parts that add up, and workers that share the requests."""

from pathlib import Path

import pytest

from placebench.compare.keep.records import LoadResult
from placebench.errors import LoadError
from placebench.lab.studies.breakdown import load_figures, request_breakdown
from placebench.telemetry import Telemetry, load


def telemetry_of(folder: Path, **files: list[str]) -> Telemetry:
    """These lines in these files."""
    for name, lines in files.items():
        head = 'h,{"format_version": 1}'
        (folder / f"{name.replace('_', '-')}.csv").write_text("\n".join([head, *lines]) + "\n")
    return load(folder)


def client(request: int, took: float) -> str:
    """Sent at second 100."""
    return f"d,100.0,{request},GET,/,200,client,,{took}"


def server(request: int, framework: float, handler: float) -> str:
    """Begun 0.01 s later."""
    return f"q,100.01,{request},GET,/,200,{framework + handler},{framework},{handler}"


def test_the_parts_add_up_to_the_clients_latency(tmp_path: Path) -> None:
    """100 ms: 10 in, 5 framework, 60 handler (30 statement, 4 commit, 6 pool), 25 out; the warm-up does not count."""
    inside = [
        f"d,100.02,1,GET,/,200,{series}" for series in ("statement,ab,0.03", "transaction,COMMIT,0.004", "pool,,0.006")
    ]
    warm_up = [server(9, 0.5, 0.5), "d,100.02,9,GET,/,200,statement,ab,0.4"]
    telemetry = telemetry_of(tmp_path, client_1=[client(1, 0.1)], worker_1=[server(1, 0.005, 0.06), *inside, *warm_up])
    found = request_breakdown(telemetry)

    assert {name: round(value, 6) for name, value in found.items()} == {
        "client_s": 0.1,
        "way_in_s": 0.01,
        "framework_s": 0.005,
        "python_s": 0.02,
        "pool_s": 0.006,
        "database_s": 0.034,
        "way_out_s": 0.025,
        "apart_requests": 1,
        "statements": 1.0,
    }


def test_a_worker_that_got_nothing_has_a_share(tmp_path: Path) -> None:
    """Six of eight requests, two, and none: chi-square of (6, 2, 0) against 8/3 each is 7."""
    telemetry = telemetry_of(
        tmp_path,
        client_1=[client(number, 0.1) for number in range(8)],
        worker_1=[server(number, 0.0, 0.0) for number in range(6)],
        worker_2=[server(number, 0.0, 0.0) for number in (6, 7)],
        worker_3=[],
    )
    result = LoadResult(
        kind="closed",
        users=2,
        rate_per_s=None,
        seed=1,
        elapsed_s=2.0,
        started_s=[0.0] * 8,
        latency_s=[0.1] * 8,
        service_s=[0.1] * 8,
        body_bytes=[1] * 8,
        statuses={"200": 8},
        failures=0,
        failure_messages=[],
        in_flight=0,
        missed=0,
        client_cpu_s=0.5,
    )
    found = load_figures(result, telemetry)

    assert found["shares"] == [0.75, 0.25, 0.0]
    assert round(found["chi_square"], 9) == 7.0
    assert (found["throughput_per_s"], found["client_cpu_share"]) == (4.0, 0.25)


def test_a_server_without_the_clients_requests_is_an_error(tmp_path: Path) -> None:
    """A full disk leaves nothing to take apart; that is no zero."""
    telemetry = telemetry_of(tmp_path, client_1=[client(1, 0.1)], worker_1=[])

    with pytest.raises(LoadError, match="no request of the client is in the server's telemetry"):
        request_breakdown(telemetry)
