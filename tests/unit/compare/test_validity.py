"""When a replicate does not count."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import load_result

from placebench.compare.keep.documents import Rules
from placebench.compare.keep.records import LoadResult
from placebench.compare.what.validity import (
    MachineSample,
    block_problem,
    late_arrivals,
    load_problem,
    machine_problem,
)
from placebench.errors import UsageError

BEFORE = MachineSample(wall_s=1000.0, monotonic_s=50.0, stolen=100, total=10_000, load=1.0)
AFTER = MachineSample(wall_s=1010.0, monotonic_s=60.0, stolen=110, total=12_000, load=2.0)


def test_a_quiet_machine_is_no_reason() -> None:
    """Ten seconds on both clocks, half a percent stolen, one more in the load average."""
    assert machine_problem(BEFORE, AFTER, cores=2) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"wall_s": 1013.2}, "the clock stepped by +3.2 s, at most 0.5 s allowed"),
        ({"wall_s": 410.0}, "the clock stepped by -600.0 s, at most 0.5 s allowed"),
        ({"stolen": 700}, "the host took 30 % of the CPU time, at most 25 % allowed"),
        ({"load": 6.0}, "the load average rose by 5.0, at most 4.0 allowed on 2 cores"),
    ],
)
def test_what_the_machine_did(change: dict[str, float], reason: str) -> None:
    """Each rule says what was seen and what is allowed."""
    assert machine_problem(BEFORE, replace(AFTER, **change), cores=2, rules=Rules(steal_at_most=0.25)) == reason


def test_the_load_of_the_requests_themselves_is_no_disturbance() -> None:
    """Forty requests under way at once may keep forty threads busy; more than four further ones are of others."""
    assert machine_problem(BEFORE, replace(AFTER, load=43.5), cores=2, under_way=40.0) is None
    assert machine_problem(BEFORE, replace(AFTER, load=44.5), cores=2, under_way=40.0) == (
        "the load average rose by 43.5, at most 43.0 allowed on 2 cores"
    )


def test_a_machine_with_a_busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says how much the host may take: all of it here, a word is refused, and a quarter otherwise."""
    busy = replace(AFTER, stolen=1500)

    monkeypatch.setenv("PLACEBENCH_STEAL_AT_MOST", "1")
    assert machine_problem(BEFORE, busy, cores=2) is None
    monkeypatch.setenv("PLACEBENCH_STEAL_AT_MOST", "25%")
    with pytest.raises(UsageError, match=r"'25%'"):
        machine_problem(BEFORE, busy, cores=2)
    monkeypatch.delenv("PLACEBENCH_STEAL_AT_MOST")
    assert Rules().steal_at_most == 0.25


def test_a_failed_request() -> None:
    """One answer that is not 200 is enough, and the first is named."""
    reason = block_problem(["status 500", "status 503"], client_cpu_s=0.1, wall_s=10.0)

    assert reason == "2 requests failed, first: status 500"


def test_a_missing_request() -> None:
    """Fewer requests than planned are not a measurement of those that were sent."""
    assert block_problem([], client_cpu_s=0.1, wall_s=10.0, missing=3) == "3 requests not sent"


def test_a_busy_client() -> None:
    """A client that computes for 8 of 10 s does not measure the server."""
    assert block_problem([], client_cpu_s=8.0, wall_s=10.0) == "the client used 80 % of a core, at most 70 % allowed"
    assert block_problem([], client_cpu_s=6.9, wall_s=10.0) is None


def test_a_moment_reads_the_kernel(tmp_path: Path) -> None:
    """Steal is the eighth figure of the first line; guest times are in the first two already."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 40 50 60 70 5 1000 1000\ncpu0 1\n")

    moment = MachineSample.now(stat)

    assert (moment.stolen, moment.total) == (5, 285)


def opened(waits_s: list[float], *, service_s: float = 0.02, client_cpu_s: float = 0.1) -> LoadResult:
    """An open load with an arrival each 10 ms, each sent so long after it was due."""
    return load_result(
        [wait + service_s for wait in waits_s],
        kind="open",
        rate_per_s=100.0,
        service_s=[service_s] * len(waits_s),
        missed=sum(wait > 0.01 for wait in waits_s),
        client_cpu_s=client_cpu_s,
    )


def test_a_generator_that_kept_its_schedule() -> None:
    """Two of 200 arrivals 20 ms late are 1 %, and a single one is allowed among however few."""
    assert load_problem(opened([0.0] * 198 + [0.02] * 2)) is None
    assert load_problem(opened([0.02, 0.0, 0.0])) is None


def test_a_missed_schedule() -> None:
    """Three of 200 are more than 1 %."""
    seen = "the load generator started 3 of 200 arrivals late, at most 1 % allowed"

    assert load_problem(opened([0.0] * 197 + [0.02] * 3)) == seen


def test_who_waits_for_the_service_is_not_late() -> None:
    """With room for two that take a second, the third arrival waits 0.98 s for the first: that is latency."""
    waiting = opened([0.0, 0.0, 0.98, 0.98], service_s=1.0)

    assert late_arrivals(waiting, at_once=2) == 0
    assert late_arrivals(waiting, at_once=400) == 2


def test_a_busy_generator() -> None:
    """It computed for 0.8 of 1 s: its own queue is in the latencies."""
    seen = "the load generator used 80 % of a core, at most 70 % allowed"

    assert load_problem(opened([0.0] * 50, client_cpu_s=0.8)) == seen
