"""The search for what a service takes."""

from collections.abc import Callable

import pytest

from placebench.errors import LoadError
from placebench.experiment.records import LoadResult
from placebench.experiment.saturation import (
    Objective,
    Outcome,
    Saturation,
    Step,
    highest_rate,
    judged,
    read_objective,
    until_errors,
)


def step(load: float, outcome: Outcome) -> Step:
    """A step with nothing but its outcome."""
    return Step(load, 100, 0, load, {}, 0.1, 0, outcome, "")


def service(capacity: float, *, generator: float = 1e9) -> Callable[[float], Step]:
    """Holds up to *capacity*, as far as a generator that ends at *generator* can tell."""
    return lambda load: step(load, "generator" if load > generator else "held" if load <= capacity else "broken")


def found(steps: list[Step]) -> Saturation:
    """A search of these steps."""
    return Saturation("x", "", "http://x", None, "rate", "p95=0.5s", 1, "complete", steps)


def test_doubled_until_it_breaks_then_between() -> None:
    """A service of 100 a second, from 10 on: 10, 20, 40, 80 hold, 160 breaks, then the middle of each pair."""
    steps = list(highest_rate(service(100), 10))
    search = found(steps)

    assert [each.load for each in steps] == [10, 20, 40, 80, 160, 113, 95.1, 104, 99.5]
    assert search.held is not None
    assert search.broken is not None
    assert (search.held.load, search.broken.load) == (99.5, 104)
    assert search.to_json()["limited_by"] == "service"


def test_halved_when_the_start_is_too_much() -> None:
    """From 40 on: 40, 20, 10 break, 5 holds."""
    assert [each.load for each in highest_rate(service(7), 40)][:4] == [40, 20, 10, 5]


def test_a_generator_that_gives_up_is_asked_twice_and_never_counts() -> None:
    """It ends at 50 of a service that takes 100: the best that held lies below, and the service is not blamed."""
    steps = list(highest_rate(service(100, generator=50), 20))
    search = found(steps)

    assert [each.load for each in steps][:4] == [20, 40, 80, 80]
    assert search.broken is None
    assert search.held is not None
    assert 47 <= search.held.load <= 50
    assert search.unclear is not None
    assert search.to_json()["limited_by"] == "generator"


def test_users_are_doubled_until_errors_begin() -> None:
    """1, 2, 4, 8 without, 16 with errors; and never more than are allowed."""
    assert [each.load for each in until_errors(service(10), 1, 1000)] == [1, 2, 4, 8, 16]
    assert [each.load for each in until_errors(service(10), 1, 4)] == [1, 2, 4]


def result(latency_s: list[float], **more: object) -> LoadResult:
    """An open load that answered so."""
    known = {
        "kind": "open",
        "users": 1,
        "rate_per_s": 10.0,
        "seed": 1,
        "elapsed_s": 10.0,
        "started_s": [number / 10 for number in range(len(latency_s))],
        "latency_s": latency_s,
        "service_s": latency_s,
        "body_bytes": [1] * len(latency_s),
        "statuses": {"200": len(latency_s)},
        "failures": 0,
        "failure_messages": [],
        "in_flight": 0,
        "missed": 0,
        "client_cpu_s": 1.0,
    }
    return LoadResult(**{**known, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "outcome", "why"),
    [
        (result([0.1] * 95 + [0.9] * 5), "held", ""),
        (result([0.1] * 94 + [0.9] * 6), "broken", "p95 is 900 ms"),
        (
            result([0.1] * 100, failures=2, failure_messages=["status 503"]),
            "broken",
            "2 of 100 requests failed, first: status 503",
        ),
        (
            result([0.9] * 100, client_cpu_s=8.0),
            "generator",
            "the load generator used 80% of a core, at most 70% allowed",
        ),
    ],
)
def test_how_a_step_is_judged(seen: LoadResult, outcome: str, why: str) -> None:
    """Five of 100 slower than the limit are allowed, six are not; a busy generator comes before all else."""
    made = judged(10.0, seen, Objective("p95", 0.5), at_once=400)

    assert (made.outcome, made.why) == (outcome, why)


def test_an_objective() -> None:
    """A quantile and a time with its unit."""
    assert read_objective("p95=500ms") == Objective("p95", 0.5)
    assert read_objective("p99=1.5s") == Objective("p99", 1.5)
    for text in ("p95", "p95=500", "p80=1s", "p95=0ms"):
        with pytest.raises(LoadError, match=f"no objective '{text}': expected p50, p90, p95 or p99 and a time"):
            read_objective(text)
