import json
from pathlib import Path

import pytest

from placebench.compare.keep.records import LoadResult
from placebench.loadgen.samples import LoadSamples


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def open_samples() -> tuple[LoadSamples, Clock]:
    """Begun at 100 s on the clock."""
    clock = Clock()
    samples = LoadSamples("open", users=1, rate_per_s=2.0, seed=7, clock=clock, cpu_clock=lambda: clock.now / 10)
    samples.begin()
    return samples, clock


def test_an_open_load_counts_from_when_a_request_was_due() -> None:
    """Due at 1 s, sent at 1.5 s, answered at 2 s: a latency of 1 s, a service time of half a second, and missed."""
    samples, clock = open_samples()
    clock.now = 101.5
    sent_s = samples.send(due_s=1.0)
    clock.now = 102.0
    samples.end(sent_s, samples.now_s(), due_s=1.0, status="200", body_bytes=10, failure=None)

    assert (samples.started_s, samples.latency_s, samples.service_s) == ([1.0], [1.0], [0.5])
    assert samples.missed == 1
    assert samples.to_json()["client_cpu_s"] == pytest.approx(0.2)


def test_a_request_up_to_10_ms_late_is_not_missed() -> None:
    """A generator's timer is good to a few milliseconds."""
    samples, clock = open_samples()
    clock.now = 100.5
    samples.send(due_s=0.495)
    samples.send(due_s=0.485)

    assert samples.missed == 1


def test_what_was_sent_and_has_not_ended_is_in_flight() -> None:
    """Two sent, one ended: its end is the end of the run."""
    samples, clock = open_samples()
    clock.now = 100.25
    sent_s = samples.send()
    samples.send()
    clock.now = 100.75
    samples.end(sent_s, samples.now_s(), due_s=None, status="200", body_bytes=10, failure=None)

    assert (samples.to_json()["in_flight"], samples.to_json()["elapsed_s"]) == (1, 0.5)


def test_failures_keep_a_few_different_messages() -> None:
    """Every failure counts; a message that came before does not come again, and no more than five are kept."""
    samples, _ = open_samples()
    for number in [0, 0, 1, 2, 3, 4, 5, 6]:
        samples.end(0.0, 0.5, due_s=None, status="500", body_bytes=4, failure=f"status 500: {number}")

    assert samples.failures == 8
    assert samples.failure_messages == [f"status 500: {number}" for number in range(5)]
    assert samples.statuses == {"500": 8}


def test_failures_are_in_no_latency_and_no_throughput(tmp_path: Path) -> None:
    """Two successes of 0.1 s and two failures of 1 ms within 0.2 s: a median of 0.1 s, and 10 requests per second."""
    samples, _ = open_samples()
    for started_s in (0.0, 0.1):
        samples.end(started_s, started_s + 0.1, due_s=None, status="200", body_bytes=4, failure=None)
        samples.end(started_s, started_s + 0.001, due_s=None, status="500", body_bytes=9, failure="status 500")
    samples.sent = 4
    samples.save(tmp_path / "samples.json")
    result = LoadResult.load(tmp_path / "samples.json")

    assert (result.requests, result.failures) == (4, 2)
    assert result.latency_s == pytest.approx([0.1, 0.1])
    assert result.failed_latency_s == pytest.approx([0.001, 0.001])
    assert result.body_bytes == [4, 4]
    assert result.throughput_per_s == pytest.approx(10)


def test_a_run_without_samples_can_be_saved(tmp_path: Path) -> None:
    """Nothing was sent, nothing took time."""
    samples = LoadSamples("closed", users=1, rate_per_s=None, seed=1)
    samples.save(tmp_path / "samples.json")

    saved = json.loads((tmp_path / "samples.json").read_text())
    assert (saved["latency_s"], saved["elapsed_s"], saved["in_flight"]) == ([], 0.0, 0)


def test_merged_samples_are_those_of_all(tmp_path: Path) -> None:
    """To the last digit: 1/3 and 0.1 + 0.2 come through as they are, counts add up, the elapsed time is of all."""
    first, second, merged = (LoadSamples("closed", users=2, rate_per_s=None, seed=1) for _ in range(3))
    first.begin()
    first.send()
    first.send()
    first.end(0.5, 0.5 + 1 / 3, due_s=None, status="200", body_bytes=3, failure=None)
    second.end(0.1, 0.1 + 0.2, due_s=None, status="500", body_bytes=4, failure="status 500")
    first.sent, second.sent = 2, 1
    counts = [merged.merge(each.encode()) for each in (first, second)]

    assert counts == [1, 1]
    assert merged.latency_s == first.latency_s
    assert merged.failed_latency_s == second.failed_latency_s
    assert (merged.started_s, merged.failed_started_s, merged.body_bytes) == ([0.5], [0.1], [3])
    assert merged.statuses == {"200": 1, "500": 1}
    assert (merged.failures, merged.failure_messages) == (1, ["status 500"])
    assert merged.to_json()["in_flight"] == 1
    assert merged.to_json()["elapsed_s"] == pytest.approx(0.4 + 1 / 3)
