"""Comparisons profile few requests, or none where a test does not look at a profile."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def few_profiled_requests() -> Iterator[None]:
    """Profile six requests to each variant of a comparison, in two replicates of twelve at most, and look at the
    statements of a hundred later requests: more only narrow the intervals.

    Without it they are those of 4 s, in eight replicates, and eight hundred later requests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("placebench.compare.measure.profiled_pass._MIN_REQUESTS", 6)
        patch.setattr("placebench.compare.measure.profiled_pass._ENOUGH_S", 0.0)
        patch.setattr("placebench.compare.compare_run._MAX_PROFILED_REPLICATES", 2)
        patch.setattr("placebench.compare.measure.counted_pass._LATER_REQUESTS", 100)
        yield


@pytest.fixture
def without_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profile no variant: each profile starts all of them once more."""
    monkeypatch.setattr("placebench.compare.compare_run.PART_REPLICATES", 0)
    monkeypatch.setattr("placebench.compare.compare_run._MAX_PROFILED_REPLICATES", 0)
