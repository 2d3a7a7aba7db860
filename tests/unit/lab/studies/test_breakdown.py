"""A request taken apart from telemetry written by hand, and the report, from figures that a reader can check."""

from pathlib import Path
from typing import Any

import pytest
from fake_survey import study_head
from made_records import load_result
from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.records import Measurement, append_lines
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
    result = load_result([0.1] * 8, elapsed_s=2.0, client_cpu_s=0.5)
    found = load_figures(result, telemetry)

    assert found["shares"] == [0.75, 0.25, 0.0]
    assert round(found["chi_square"], 9) == 7.0
    assert (found["throughput_per_s"], found["client_cpu_share"]) == (4.0, 0.25)


def test_a_server_without_the_clients_requests_is_an_error(tmp_path: Path) -> None:
    """A full disk leaves nothing to take apart; that is no zero."""
    telemetry = telemetry_of(tmp_path, client_1=[client(1, 0.1)], worker_1=[])

    with pytest.raises(LoadError, match="no request of the client is in the server's telemetry"):
        request_breakdown(telemetry)


PARTS = ("http_s", "framework_s", "python_s", "pool_s", "database_s", "unexplained_s")


def values(throughput_per_s: float, way_s: float, database_s: float) -> dict[str, Any]:
    """A request of so many seconds on its way and in the database, 1 ms in the framework and 2 ms in Python."""
    return {
        "path": "/",
        "requests": 100,
        "throughput_per_s": throughput_per_s,
        "client_cpu_share": 0.1,
        "shares": [0.5, 0.5],
        "chi_square": 0.0,
        "client_s": way_s + 0.003 + database_s,
        "way_in_s": way_s / 2,
        "way_out_s": way_s / 2,
        "framework_s": 0.001,
        "python_s": 0.002,
        "pool_s": 0.0,
        "database_s": database_s,
        "statements": 1.0,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A no-op of 4 ms outside of the application, and traits of 6 ms there and 2 ms in the database; five repeats."""
    points = [{"endpoint": "no-op"}, {"endpoint": "traits"}]
    study_head(
        "breakdown", variants=["tuned"], settings={"points": points, "repeats": 5, "impossible": []}, request="/traits"
    ).save(tmp_path / "run.json")
    return tmp_path


def measured(folder: Path, noop_per_s: float, traits_per_s: float) -> results.Run:
    """The run with these throughputs."""
    for repeat in range(5):
        made = {"no-op": values(noop_per_s, 0.004, 0.0), "traits": values(traits_per_s, 0.006, 0.002)}
        for endpoint, seen in made.items():
            append_lines(folder / "measurements.jsonl", [Measurement({"endpoint": endpoint}, repeat, seen)])
    return results.load(folder)


def test_what_a_no_op_does_not_need_is_left_unexplained(folder: Path) -> None:
    """Of 6 ms outside of the application 4 are the no-op's, 2 are unexplained; all parts are the client's 11 ms."""
    run = measured(folder, 200.0, 100.0)
    _, traits = document_of(run)["rows"]

    assert (0.004, 0.002) == tuple(pytest.approx(traits[name]) for name in ("http_s", "unexplained_s"))
    assert pytest.approx(0.011) == traits["client_s"] == pytest.approx(sum(traits[part] for part in PARTS))
    assert (0.5, 0.5) == (traits["share_of_noop"], traits["database_share"])
    assert "which is impossible" not in text_of(run)


def test_nothing_can_be_quicker_than_the_no_op(folder: Path) -> None:
    """Where something seems to be, the machine was busy, and that is said."""
    text = text_of(measured(folder, 100.0, 130.0))

    assert "traits had a higher throughput than the no-op, which is impossible: the machine was busy" in text
