"""The knee of services with a known law: one queue, simulated, with arrivals as locust sends them."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_queue import Law, constant, exponential, served

from placebench.compare.keep.records import LoadResult
from placebench.compare.load import knee
from placebench.compare.load.capacity import CapacitySearch
from placebench.compare.load.load_run import LoadSpec
from placebench.compare.load.load_steps import Knee, LoadStep, Saturated, Saturation, capacity_of, parse_objective
from placebench.errors import LoadError
from placebench.meters.readings import Usage
from placebench.report import build_report

SATURATED = Saturated(32, 99.0, 0.01, 0.2, "worker CPU", "1 process used 99 % of a core", Usage())


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Saturation]:
    """A search for the capacity of a queue of a law."""

    def found(law: Law, slo: str, *, replicates: int = 6, seed: int = 1) -> Saturation:
        monkeypatch.setattr(knee, "run_load", lambda spec, **_: served(spec, law))
        monkeypatch.setattr(knee.KneeLoad, "saturate", lambda *_: SATURATED)
        searched = CapacitySearch(
            LoadSpec("http://127.0.0.1:1", seed=seed), tmp_path, step_s=10.0, report=lambda *_: None
        )
        searched.rate(parse_objective(slo), None, replicates=replicates)
        assert searched.result == Saturation.load(tmp_path / "saturation.json")
        return searched.result

    return found


@pytest.mark.parametrize(
    ("law", "slo", "true_per_s"),
    [
        # P(latency > t) of M/M/1 is exp(-(mu - lambda) t): p95 is 100 ms at 100 - ln 20 / 0.1.
        (exponential(0.01), "p95 <= 100ms", 100 - math.log(20) / 0.1),
        # By simulation of 60,000 arrivals (M/D/1 has no closed form for a percentile of the latency).
        (constant(0.01), "p95 <= 50ms", 69.2),
    ],
    ids=["M/M/1", "M/D/1"],
)
def test_five_answers_on_a_known_queue_agree(
    search: Callable[..., Saturation], law: Law, slo: str, true_per_s: float
) -> None:
    """Each of five searches is within 5 % of the true capacity, and its interval encloses it or nearly so."""
    found = [search(law, slo, seed=1000 * number).capacity for number in range(1, 6)]

    for each in found:
        assert each is not None
        assert each.n == 6
        assert abs(each.rate_per_s / true_per_s - 1) < 0.05
        assert each.low_per_s is not None
        assert each.high_per_s is not None
        assert each.low_per_s * 0.98 < true_per_s < each.high_per_s * 1.02


def test_the_report_has_the_interval_and_what_was_full(search: Callable[..., Saturation], tmp_path: Path) -> None:
    """The sentence, the document and the picture."""
    found = search(constant(0.01), "p95 <= 50ms")
    report = build_report(tmp_path)
    assert found.capacity is not None

    assert report.headline.startswith("http://127.0.0.1:1 meets p95 ≤ 50.0 ms up to ")
    assert report.headline.endswith("; n = 6].")
    assert report.summary[0] == (
        "At the highest throughput, 99.0 requests/s, what is full is the CPU of the workers (1 process used 99 % of a "
        "core)."
    )
    assert report.document["capacity"]["n"] == 6
    assert report.document["saturated"]["full"] == "worker CPU"
    assert len(report.document["knees"]) == 6
    assert ["Latency", "Steps"] == [section.heading for section in report.sections]


def test_few_replicates_have_no_interval(search: Callable[..., Saturation], tmp_path: Path) -> None:
    """Two replicates: an estimate, and how many would have an interval."""
    search(constant(0.01), "p95 <= 50ms", replicates=2)

    assert build_report(tmp_path).headline.endswith("arrivals/s [n = 2, 6 needed for an interval].")


def test_steps_too_short_for_the_limit_are_named(search: Callable[..., Saturation], tmp_path: Path) -> None:
    """p95 <= 500 ms of a service of 10 ms: such a queue needs 11 s to settle, and steps of 10 s show too much."""
    search(constant(0.01), "p95 <= 500ms", replicates=1)

    assert "give --time 67." in str(build_report(tmp_path).summary[-1])


def test_a_limit_below_the_latency_of_one_user_ends_the_search(search: Callable[..., Saturation]) -> None:
    """One step says so, and no load follows."""
    found = search(constant(0.3), "p95 <= 100ms")

    assert [("broken", "a user who is alone waits 300 ms")] == [(each.outcome, each.why) for each in found.steps]
    assert found.capacity is None


def test_a_user_who_only_gets_failures_ends_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line has the first failure."""

    def failed(spec: LoadSpec, **_: object) -> LoadResult:
        made = served(spec, constant(0.01))
        return replace(made, started_s=[], latency_s=[], service_s=[], failures=10, failure_messages=["status 500"])

    monkeypatch.setattr(knee, "run_load", failed)
    load = knee.KneeLoad(LoadSpec("http://127.0.0.1:1"), parse_objective("p95 <= 9ms"), tmp_path, step_s=1.0)

    with pytest.raises(LoadError, match="every request of a user who is alone failed, first: status 500"):
        load.alone()


def step(rate: float, objective_s: float | None, outcome: str = "held") -> LoadStep:
    """A step of a replicate."""
    return LoadStep(rate, 100, 0, rate, {"p50": 0.01}, 0.1, 0, outcome, "late", objective_s=objective_s)  # type: ignore[arg-type]


def test_a_replicate_whose_generator_was_the_limit_has_no_knee() -> None:
    """Three of five steps were discarded."""
    steps = [step(rate, 0.01, "generator" if rate > 20 else "held") for rate in (10.0, 20.0, 30.0, 40.0, 50.0)]

    assert Knee(None, steps, "late") == knee.find_knee(steps, parse_objective("p95 <= 50ms"))


def test_a_replicate_without_a_crossing_has_no_knee() -> None:
    """All rates are far below the limit."""
    steps = [step(rate, 0.001) for rate in (10.0, 20.0, 30.0, 40.0, 50.0)]

    found = knee.find_knee(steps, parse_objective("p95 <= 50ms"))

    assert (None, "p95 does not cross the limit at these rates") == (found.rate_per_s, found.why)


@pytest.mark.parametrize("guess", [8.0, 20.0, 60.0, 200.0, 500.0])
def test_a_replicate_goes_on_until_the_limit_is_crossed(guess: float) -> None:
    """Wherever it begins, its knee is that of the service: 100 a second, from which on a queue grows."""
    made: list[float] = []

    def measure(rate: float) -> LoadStep:
        made.append(rate)
        return step(rate, 0.001) if rate < 100 else step(rate, None, "broken")

    found = knee.measure_knee(measure, guess, parse_objective("p95 <= 50ms"), seed=1)

    assert made == [each.load for each in found.steps]
    assert found.rate_per_s is not None
    assert abs(found.rate_per_s / 100 - 1) < 0.15


@pytest.mark.parametrize(
    ("objective_s", "outcome", "steps", "why"),
    [
        (0.001, "held", 25, "p95 does not cross the limit from 78.7 to 1.4e+03 arrivals/s"),
        (0.001, "generator", 5, "late"),
    ],
)
def test_a_replicate_ends_where_no_limit_is_to_be_found(objective_s: float, outcome: str, steps: int, why: str) -> None:
    """After five ranges of rates, or at once where the load generator is the limit."""
    found = knee.measure_knee(
        lambda rate: step(rate, objective_s, outcome), 100, parse_objective("p95 <= 50ms"), seed=1
    )

    assert (None, steps, why) == (found.rate_per_s, len(found.steps), found.why)


def test_the_rates_of_a_replicate_are_around_the_guess() -> None:
    """Five rates from 0.787 to 1.271 times 100, in an order that the seed draws."""
    assert [78.66, 88.69, 100.0, 112.7, 127.1] == sorted(knee.rates_around(100, seed=1))
    assert knee.rates_around(100, seed=1) != knee.rates_around(100, seed=2)


def test_the_capacity_leaves_out_replicates_without_a_knee() -> None:
    """Six of seven have one; the pseudo-median of equal values is the value."""
    found = capacity_of([10.0, None, 10.0, 10.0, 10.0, 10.0, 10.0])

    assert found is not None
    assert (6, 10.0) == (found.n, round(found.rate_per_s, 9))
    assert capacity_of([None]) is None
