"""`placebench load --until-errors` and `--slo`, on the small service."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_queue import constant
from simulated_queue import served as simulated

from placebench.cli import main
from placebench.compare.keep.records import LoadResult
from placebench.compare.load import capacity, knee
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.load.load_steps import LoadStep, Saturation
from placebench.report import build_report, write_report
from placebench.runtime.running_server import RunningServer

Served = Callable[..., RunningServer]


@pytest.mark.long
def test_users_are_doubled_until_answers_time_out(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One worker answers in 0.3 s and nobody waits longer than 0.9 s: two users are served, four are not all."""
    folder = tmp_path / "search"
    url = served().url
    options = [
        "--until-errors",
        "--users",
        "2",
        "--response-timeout",
        "0.9",
        "--time",
        "0.7",
        "--request",
        "/work?sleep=0.3",
    ]
    exit_code = main(["load", url, *options, "--out", str(folder), "--json"])
    document = json.loads(capsys.readouterr().out)

    assert exit_code == 0
    assert (document["held"], document["broken"], document["limited_by"]) == (2, 4, "service")
    assert [step["load"] for step in document["steps"]] == [2, 4]
    assert document["headline"].startswith(f"{url} responds without errors up to 2 users; with 4 users ")
    assert LoadResult.load(folder / "step-02.json").failures > 0
    assert "Throughput" in (folder / "index.html").read_text()
    assert main(["report", "open", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == document["headline"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slo", "p95 <= 5"], "gate 'p95 <= 5': p95 is in one of us, ms, s"),
        (["--slo", "p95 > 5ms"], "objective 'p95 > 5ms': expected a limit above 0 that is not exceeded"),
        (
            ["--slo", "p95 <= 5ms", "--requests", "9"],
            "--requests with --slo: a search makes a load of its own, in steps of --time",
        ),
        (["--slo", "p95 <= 5ms", "--locustfile", "x.py"], "--locustfile with --slo: a search makes a load of its own"),
        (["--until-errors", "--check-writes"], "--check-writes with --until-errors: a search makes a load of its own"),
        (["--until-errors", "--users", "0"], "argument --users: expected a whole number from 1 to 100000, saw '0'"),
        (["--slo", "p95 <= 5ms"], "nothing responds at http://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_searched(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line, and no folder stays behind."""
    exit_code = main(["load", "http://127.0.0.1:1", *options, "--out", str(tmp_path / "search")])

    assert exit_code == 2
    assert capsys.readouterr().err.startswith(f"placebench load: {message}")
    assert not (tmp_path / "search").exists()


@pytest.mark.long
def test_a_service_that_ends_during_the_search(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says after how many loads, and the load that it served is reported."""
    server = served()

    def run_and_stop(spec: LoadSpec, *, folder: Path) -> LoadResult:
        result = run_load(spec, folder=folder)
        server.stop()
        return result

    monkeypatch.setattr(capacity, "run_load", run_and_stop)
    options = ["--until-errors", "--users", "1", "--time", "0.5", "--request", "/work", "--json"]
    exit_code = main(["load", server.url, *options, "--out", str(tmp_path / "search")])
    written = capsys.readouterr()

    assert exit_code == 2
    assert f"after 1 load of this search: nothing responds at {server.url} (" in written.err
    assert [1] == [step["load"] for step in json.loads(written.out)["steps"]]


def step(load: float, outcome: str, why: str = "") -> LoadStep:
    """A step of a search for a rate."""
    quantiles = {"p50": load / 1000, "p90": None, "p95": load / 200, "p99": None}
    return LoadStep(load, 200, 0, load, quantiles, 0.2, 0, outcome, why)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (
            [step(20, "held"), step(40, "broken", "p95 is 900 ms")],
            "http://x meets p95 ≤ 500 ms up to 20.0 arrivals/s; at 40.0 arrivals/s p95 is 900 ms.",
        ),
        (
            [step(20, "held"), step(40, "generator", "the load generator used 80 % of a core")],
            (
                "http://x meets p95 ≤ 500 ms at 20.0 arrivals/s; higher loads are inconclusive: at 40.0 arrivals/s "
                "the load generator used 80 % of a core."
            ),
        ),
        (
            [step(20, "broken", "p95 is 900 ms")],
            "http://x does not meet p95 ≤ 500 ms even at 20.0 arrivals/s: p95 is 900 ms.",
        ),
        ([step(20, "generator", "it was late")], "The capacity of http://x is inconclusive: it was late."),
    ],
)
def test_the_result_is_one_sentence(steps: list[LoadStep], line: str, tmp_path: Path) -> None:
    """What holds, what does not; and a generator's limit is never the service's."""
    made = Saturation("x", "", "http://x", "/", "rate", "p95 <= 0.5s", 1, "complete", steps)
    made.save(tmp_path / "saturation.json")

    assert build_report(tmp_path).headline == line


def test_the_page_of_an_interrupted_search(tmp_path: Path) -> None:
    """Its chart leaves out what does not count, its table holds every step."""
    steps = [step(20, "held"), step(80, "generator", "it was late"), step(40, "broken", "p95 is 900 ms")]
    made = Saturation(
        "x", "2026-11-21T10:00:00+00:00", "http://x", "/a", "rate", "p95 <= 0.5s", 7, "interrupted", steps
    )
    made.save(tmp_path / "saturation.json")
    page = write_report(tmp_path).read_text()

    assert Saturation.load(tmp_path / "saturation.json") == made
    assert "This search was interrupted" in page
    assert page.count("<tr class=") == 3
    assert "discarded, it was late" in page
    assert page.count('class="point disc"') == 2 + 2 + 2


def test_a_capacity_has_replicates_and_an_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a simulated M/D/1 queue of 100 a second; nothing listens at the URL, so what was full is not known."""
    monkeypatch.setattr(knee, "run_load", lambda spec, **_: simulated(spec, constant(0.01)))
    words = ["load", "http://127.0.0.1:1", "--slo", "p95 <= 50ms", "--out", str(tmp_path / "run"), "--json"]

    exit_code = main(words)

    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (0, 6, 6) == (exit_code, document["capacity"]["n"], len(document["knees"]))
    assert document["capacity"]["low_per_s"] < document["capacity"]["rate_per_s"] < document["capacity"]["high_per_s"]
    assert "unknown" == document["saturated"]["full"]
    assert 5 == printed.err.count("replicate 6 of 6, ")


def test_replicates_belong_to_a_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and exit code 2."""
    assert 2 == main(["load", "http://127.0.0.1:1", "-n", "3"])
    assert "--replicates without --slo: only the search for a capacity is repeated" in capsys.readouterr().err
