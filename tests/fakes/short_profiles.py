"""Comparisons profile as few requests as show that they do."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def few_profiled_requests() -> Iterator[None]:
    """Profile six requests to each variant of a comparison, in two replicates at most: more only narrow the intervals.

    Without it they are those of 4 s, in eight replicates.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("placebench.compare.measure.profiled_pass._MIN_REQUESTS", 6)
        patch.setattr("placebench.compare.measure.profiled_pass._ENOUGH_S", 0.0)
        patch.setattr("placebench.compare.compare_run._MAX_PROFILED_REPLICATES", 2)
        yield
