"""The mean of profiled requests."""

import json
from pathlib import Path

import pytest
from flame_graphs import session_of

from placebench.compare.measure.profiled_pass import _mean_times


def saved(path: Path, view: str, self_s: float) -> Path:
    """A request with so many seconds in a view."""
    stack = [f"{view}\x00/app/views.py\x001"]
    path.write_text(json.dumps(session_of([(stack, self_s)], start_call_stack=stack).to_json()))
    return path


def test_a_slow_request_of_a_mix_counts_and_one_that_waited_does_not(tmp_path: Path) -> None:
    """Three of one kind, the last of which waited, take 1 ms each, two of another 10 ms: 3/5 x 1 and 2/5 x 10."""
    requests = [("one", 0.001), ("list", 0.010), ("one", 0.001), ("list", 0.010), ("one", 0.005)]
    sessions = [saved(tmp_path / f"{number}.json", *each) for number, each in enumerate(requests)]

    times = _mean_times(sessions, [f"GET /{view}" for view, _ in requests])

    assert [("one", 0.0006), ("list", 0.004)] == [(each.name, pytest.approx(each.self_s)) for each in times]
