"""`placebench compare --users`: what shows only when several users wait at the same time."""

from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.report.figures import figures_of

pytestmark = pytest.mark.usefixtures("without_profiles")

APP = """
import os, threading, time

lock = threading.Lock() if os.environ.get("LOCKED") else threading.Semaphore(8)


def application(environ, start_response):
    with lock:
        time.sleep(0.02)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
"""
PLAN = """
database = "none"
request = "/"
{keys}

[app]
app = "service:application"
server = "gunicorn"
threads = 8

[variants.free]

[variants.locked]
env = {{ LOCKED = "yes" }}
"""


def compare(folder: Path, *options: str, keys: str = "") -> int:
    """Compare the service with and without its lock, in one round per replicate."""
    (folder / "service.py").write_text(APP)
    (folder / "plan.toml").write_text(PLAN.format(keys=keys))
    return main(
        ["compare", "--plan", str(folder / "plan.toml"), "--rounds", "1", "-q", "-o", f"{folder}/run", *options]
    )


@pytest.mark.long
def test_a_lock_is_found_that_shows_only_with_several_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With 8 users a service behind one lock has an eighth of the throughput; 7 of 8 requests wait for it.

    One replicate shows that, and is too few for a verdict. Its two rounds have the requests that p95 needs.
    """
    assert 3 == compare(tmp_path, "-n", "1", "--rounds", "2", keys="users = 8")

    figures = figures_of(results.load(tmp_path / "run"))
    compared = {each.metric: each for each in figures.comparisons}
    assert "elapsed_s" == figures.metric
    assert 2 < (compared["elapsed_s"].ratio or 0)
    assert 2 < (compared["p95_s"].ratio or 0)
    for block in figures.run.blocks:
        assert block.requests >= 80
        # Little's law: the users are all waiting for a response, but for the client's own time and the last requests.
        assert 0.5 * 8 < sum(block.wall_s) / block.counters["elapsed_s"] <= 8.01
    said = capsys.readouterr().out
    assert "effect on time per request under load" in said


def test_users_are_for_requests_and_workers_for_applications(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script has one user, and a command says itself how many processes it starts."""
    (tmp_path / "visit.py").write_text("def visit(client):\n    client.get('/')\n")
    plan = PLAN.replace('request = "/"', 'workload = "visit:visit"')
    (tmp_path / "script.toml").write_text(plan.format(keys="users = 2"))
    (tmp_path / "command.toml").write_text(
        'request = "/"\n[variants.one]\ncommand = "serve {port}"\nprocesses = 2\n[variants.two]\ncommand = "x {port}"\n'
    )
    (tmp_path / "service.py").write_text(APP)

    said = []
    for name in ("script", "command"):
        assert 2 == main(["compare", "--plan", str(tmp_path / f"{name}.toml"), "-q", "-o", f"{tmp_path}/{name}"])
        said.append(capsys.readouterr().err.splitlines()[-1])

    assert "2 users of the script visit:visit" in said[0]
    assert "the variant one has processes and a command" in said[1]


@pytest.mark.long
def test_a_lock_shows_in_the_tail_of_requests_that_arrive_at_a_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At more than twice the rate that the lock allows, a variant without it keeps up, and the other does not.

    Latency counts from the moment a request was due, so that the waiting of a late request is in it.
    """
    assert 3 == compare(tmp_path, "-n", "1", keys="rate = 120")

    figures = figures_of(results.load(tmp_path / "run"))
    compared = {each.metric: each for each in figures.comparisons}
    assert "p95_s" == figures.metric
    assert {"cpu_s", "p50_s", "p95_s"} <= compared.keys()
    assert "wall_s" not in compared
    assert 2 < (compared["p95_s"].ratio or 0)
    for block in figures.run.blocks:
        assert 120 == block.requests == len(block.wall_s)
        assert 0 < block.counters["scheduled_s"] <= block.counters["at_rate_s"]
    first, second, *_ = figures.run.blocks
    assert first.counters["scheduled_s"] == second.counters["scheduled_s"]
    said = capsys.readouterr().out
    assert "effect on p95 latency" in said
    assert "the generator used " in said
    assert "locked does not keep up with 120 /s: it serves " in said


@pytest.mark.parametrize(
    ("keys", "options", "expected"),
    [
        ("users = 2", ("--rate", "5"), "a rate of 5 per second and 2 users: "),
        ("rate = 5", ("--users", "2"), "a rate of 5 per second and 2 users: "),
        ("", ("--rate", "5", "--control", "wait:1ms"), "a control of +1 ms wait at a rate of 5 per second: "),
        ("rate = 0", (), "rate"),
        ("", ("--rate", "0"), "--rate"),
    ],
)
def test_a_rate_that_does_not_apply_is_one_line(
    keys: str, options: tuple[str, ...], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users wait for responses, and arrivals at a rate do not; a wait needs a wall time."""
    assert 2 == compare(tmp_path, *options, keys=keys)

    assert expected in capsys.readouterr().err.splitlines()[-1]


def test_a_rate_is_for_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The requests of a script's iteration follow each other, and cannot arrive at a rate."""
    (tmp_path / "visit.py").write_text("def visit(client):\n    client.get('/')\n")
    (tmp_path / "service.py").write_text(APP)
    plan = PLAN.replace('request = "/"', 'workload = "visit:visit"')
    (tmp_path / "script.toml").write_text(plan.format(keys="rate = 2"))

    assert 2 == main(["compare", "--plan", str(tmp_path / "script.toml"), "-q", "-o", f"{tmp_path}/script"])

    assert "a rate of 2 per second of the script visit:visit: " in capsys.readouterr().err.splitlines()[-1]
