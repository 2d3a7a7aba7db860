"""The search for what a service takes."""

import random
from collections.abc import Callable
from itertools import accumulate

import pytest
from made_records import load_result

from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_steps import LoadStep, Objective, Outcome, Saturation, parse_objective
from placebench.compare.load.step_outcomes import highest_rate, judge_load, until_errors
from placebench.errors import UsageError


def step(load: float, outcome: Outcome) -> LoadStep:
    """A step with nothing but its outcome."""
    return LoadStep(load, 100, 0, load, {}, 0.1, 0, outcome, "")


def service(capacity: float, *, generator: float = 1e9) -> Callable[[float], LoadStep]:
    """Holds up to *capacity*, as far as a generator that ends at *generator* can tell."""
    return lambda load: step(load, "generator" if load > generator else "held" if load <= capacity else "broken")


def found(steps: list[LoadStep]) -> Saturation:
    """A search of these steps."""
    return Saturation("x", "", "http://x", None, "rate", "p95 <= 0.5s", 1, "complete", steps)


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


def test_a_generator_that_is_the_limit_at_every_rate_ends_the_search() -> None:
    """Of a machine that is too busy, three rates are tried twice each, and no lower ones."""
    steps = list(highest_rate(service(100, generator=0), 40))

    assert [each.load for each in steps] == [40, 40, 20, 20, 10, 10]
    assert (found(steps).held, found(steps).broken) == (None, None)


def test_users_are_doubled_until_errors_begin() -> None:
    """1, 2, 4, 8 without, 16 with errors; and never more than are allowed."""
    assert [each.load for each in until_errors(service(10), 1, 1000)] == [1, 2, 4, 8, 16]
    assert [each.load for each in until_errors(service(10), 1, 4)] == [1, 2, 4]


def test_more_users_than_are_tried_by_ourselves() -> None:
    """Who begins above the last doubling gets that one step."""
    assert [each.load for each in until_errors(service(3000), 2000, 1024)] == [2000]


def test_a_generator_that_gives_up_on_users_is_asked_twice_too() -> None:
    """It ends at 50 of a service that takes 100: 80 is tried twice, and the search ends."""
    assert [each.load for each in until_errors(service(100, generator=50), 20, 1024)] == [20, 40, 80, 80]


def result(latency_s: list[float], **more: object) -> LoadResult:
    """An open load that answered so."""
    usual = {"kind": "open", "rate_per_s": 10.0, "elapsed_s": 10.0, "client_cpu_s": 1.0}
    return load_result(latency_s, **{**usual, **more})


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
            "the load generator used 80 % of a core, at most 70 % allowed",
        ),
    ],
)
def test_how_a_step_is_judged(seen: LoadResult, outcome: str, why: str) -> None:
    """Five of 100 slower than the limit are allowed, six are not; a busy generator comes before all else."""
    made = judge_load(10.0, seen, Objective("p95", 0.5), at_once=400)

    assert (made.outcome, made.why) == (outcome, why)


def queued(rate_per_s: float, *, answer_s: float, seconds: float = 10.0, seed: int = 1) -> LoadResult:
    """Poisson arrivals at a service that answers one after the other."""
    chance = random.Random(seed)
    gaps = (chance.expovariate(rate_per_s) for _ in range(round(rate_per_s * seconds)))
    starts = list(accumulate(gaps))
    ends = list(accumulate(starts, lambda free, start: max(free, start) + answer_s, initial=0.0))[1:]
    latency_s = [end - start for start, end in zip(starts, ends, strict=True)]
    return result(latency_s, rate_per_s=rate_per_s, started_s=starts)


def test_a_queue_that_grows_is_not_held() -> None:
    """150 a second at a service of 100 wait 5 s at the most after 10 s: within the objective, and yet too much."""
    made = judge_load(150.0, queued(150, answer_s=0.01), Objective("p95", 5.0), at_once=10_000)

    assert (made.outcome, made.why) == ("broken", "a queue grows: 146 /s arrived, 100 /s were served")


@pytest.mark.parametrize(("rate_per_s", "seconds"), [(80, 10), (3.2, 75), (2, 12)])
def test_waiting_by_chance_is_no_queue_that_grows(rate_per_s: float, seconds: float) -> None:
    """At 80 % of what the service takes at most 1 of 100 steps breaks, of 800, 240 or 24 requests."""
    steps = [
        judge_load(
            rate_per_s,
            queued(rate_per_s, answer_s=0.8 / rate_per_s, seconds=seconds, seed=seed),
            Objective("p50", 60.0),
            at_once=400,
        )
        for seed in range(100)
    ]

    assert sum(each.outcome == "broken" for each in steps) <= 1


def test_a_long_latency_is_no_queue() -> None:
    """Who answers each after 2 s keeps up with whatever comes."""
    made = judge_load(10.0, result([2.0] * 100), Objective("p95", 5.0), at_once=400)

    assert (made.outcome, made.why) == ("held", "")


def test_an_objective() -> None:
    """A quantile and a time with its unit."""
    assert parse_objective("p95 <= 500ms") == Objective("p95", 0.5)
    assert parse_objective("p99 < 1.5s") == Objective("p99", 1.5)
    for text in ("p95", "p95 <= 500", "p80 <= 1s", "p95 <= 0ms", "p95 >= 1s"):
        with pytest.raises(UsageError, match=text):
            parse_objective(text)
