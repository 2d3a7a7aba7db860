"""Records of a run, of which a test names the fields that matter to it."""

from collections.abc import Sequence
from typing import Any

from placebench.compare.keep.records import LoadResult, RunHead


def run_head(**fields: Any) -> RunHead:
    """Return the head of a complete run with these fields."""
    usual: dict[str, Any] = {
        "name": "run",
        "started_at": "2026-11-21T15:00:00+00:00",
        "status": "complete",
        "request": "/allocation_candidates?resources=VCPU:1",
        "topology": "nested-perfload",
        "trees": 5,
        "seed": 1,
        "variants": ["naive", "tuned"],
        "receipt": {},
        "manifest": {},
        "settings": {},
        "same_responses": {},
    }
    return RunHead(**{**usual, **fields})


def load_result(latency_s: Sequence[float], **fields: Any) -> LoadResult:
    """Return a closed-loop load of one user for a second, whose requests all succeeded, with these fields."""
    count = len(latency_s)
    usual: dict[str, Any] = {
        "kind": "closed",
        "users": 1,
        "rate_per_s": None,
        "seed": 1,
        "elapsed_s": 1.0,
        "started_s": [number / 100 for number in range(count)],
        "latency_s": list(latency_s),
        "service_s": list(latency_s),
        "body_bytes": [1] * count,
        "statuses": {"200": count},
        "failures": 0,
        "failure_messages": [],
        "in_flight": 0,
        "missed": 0,
        "client_cpu_s": 0.1,
    }
    return LoadResult(**{**usual, **fields})
