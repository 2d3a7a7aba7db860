"""Surveys for tests: run folders of every command that asks one, with made-up measurements; nothing was measured.

The main functions are `write_survey`, `measured_again` and `write_search`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from made_records import run_head

from placebench import results
from placebench.compare.keep.records import Measurement, RunHead, append_lines
from placebench.compare.load.load_steps import LoadStep, Saturation
from placebench.lab.studies.matrix_plan import AXES
from placebench.results import Run

_MIB = 1 << 20
_VERSIONS = {"python": "3.11.7", "service": "placebench 1.0", "sqlalchemy": "2.1.9", "driver": None}
_MATRIX = [
    {"service": service, "database": database, "requests": 10, "trees": 5}
    for service in ("naive", "tuned")
    for database in ("postgresql", "sqlite")
]


POINTS: Mapping[str, Sequence[dict[str, Any]]] = {
    "breakdown": [{"endpoint": "no-op"}, {"endpoint": "traits"}],
    "published": [
        {"service": service, "topology": "nested-perfload", "clients": clients}
        for clients in (1, 40)
        for service in ("naive", "tuned")
    ],
    "herd": [
        {"topology": "bare-metal", "schedulers": schedulers, "randomized": randomized}
        for schedulers in (1, 10)
        for randomized in (False, True)
    ],
    "saturation": [{"variant": variant} for variant in ("naive", "cached")],
    "operators": [
        {"topology": topology, "setting": setting}
        for topology in ("cern", "gpu-hosts")
        for setting in ("as installed", "limit=10")
    ],
    "network": [{"variant": variant, "latency_ms": ms} for variant in ("naive", "tuned") for ms in (0.0, 50.0)],
    "matrix": _MATRIX,
    "workers": [
        {"workload": workload, "processes": processes, "threads": threads}
        for workload in ("query", "state")
        for processes, threads in ((1, 4), (4, 1))
    ],
    "scaleout": [{"hosts": hosts, "replicas": 1} for hosts in (1, 2)],
    "study-network": [
        {"variant": variant, "link": link, "latency_ms": ms}
        for variant in ("insert", "pipeline")
        for link, ms in (("0", 0.0), ("20+30", 50.0))
    ],
    "study-matrix": [{"plugin": plugin} for plugin in ("off", "on")],
    "study-matrix-app": [
        {"variant": variant, "users": users} for users in (1, 25) for variant in ("plain", "recorder")
    ],
    "study-saturation": [{"variant": variant} for variant in ("plain", "recorder")],
    "study-workers": [{"way": way, "workers": workers} for way in ("threads", "forks") for workers in (1, 2)],
}
SETTINGS: Mapping[str, dict[str, Any]] = {
    "breakdown": {"variant": "tuned", "processes": 2, "time_s": 3.0},
    "published": {
        "processes": 4,
        "threads": 10,
        "published": [
            {"topology": "nested-perfload", "clients": 40, "before_per_s": 0.2, "after_per_s": 1.5},
        ],
        "published_trees": 1000,
        "published_source": "a page",
        "published_machine": "a machine",
    },
    "herd": {"claims": 20, "processes": 4, "threads": 10},
    "saturation": {
        "control": {"variant": "naive"},
        "objective": "p95 <= 0.5s",
        "users": [],
        "processes": 4,
        "threads": 1,
        "step_s": 5.0,
        "timeout_s": 5.0,
    },
    "operators": {"clients": 4, "timeout_s": 60.0, "base": "as installed", "trees": {"cern": 10, "gpu-hosts": 2}},
    "network": {"job": "query", "operations": 1, "between": "database", "bytes_per_s": None, "proxies": 1},
    "matrix": {
        "matrix": "mine",
        "title": "Is SQLite faster?",
        "control": {"database": "postgresql"},
        "usual": dict(AXES),
        "versions": [{"point": point, **_VERSIONS} for point in _MATRIX],
    },
    "workers": {"requests": {"query": 40, "state": 40}, "users": 4, "variant": "tuned"},
    "scaleout": {"requests": 100, "users": 8, "variant": "dedup", "processes": 1, "cpus_per_host": 0},
    "study-network": {
        "between": "command",
        "target": "127.0.0.1:5432",
        "bytes_per_s": None,
        "loss": 0.0,
        "operations": 1,
        "clients": 1,
        "prepare": "",
    },
    "study-matrix": {"control": {"plugin": "off"}, "jobs": 40, "count": "$.orders[*]"},
    "study-matrix-app": {"control": {"variant": "plain"}, "count": "$.orders[*]"},
    "study-saturation": {"control": {"variant": "plain"}, "objective": "p95 <= 0.05s", "users": [], "step_s": 10.0},
    "study-workers": {"jobs": 40, "count": "$.orders[*]", "coroutine": "", "pythons": {"python": "/usr/bin/python3"}},
}
_SATURATION: Mapping[str, Any] = {
    "knee_per_s": 69.0,
    "max_per_s": 99.0,
    "steps": [
        {
            "load": rate,
            "requests": 500,
            "failures": 0,
            "throughput_per_s": rate,
            "latency_s": {"p50": 0.012, "p90": 0.03, "p95": p95_s, "p99": None},
            "client_cpu": 0.2,
            "missed": 0,
            "outcome": outcome,
            "why": why,
            "objective_s": p95_s,
        }
        for rate, p95_s, outcome, why in ((60.0, 0.04, "held", ""), (80.0, 0.08, "broken", "p95 is 80.0 ms"))
    ],
    "saturated": {
        "users": 32,
        "throughput_per_s": 99.0,
        "alone_s": 0.01,
        "client_cpu": 0.3,
        "full": "worker CPU",
        "why": "1 process used 99 % of a core",
        "usage": {"machine_cpu": 0.6, "process_cpu": 0.99, "processes": 1, "threads": 1},
    },
}
VALUES: Mapping[str, dict[str, Any]] = {
    "breakdown": {
        "path": "/",
        "requests": 100,
        "throughput_per_s": 100.0,
        "client_cpu_share": 0.1,
        "shares": [0.5, 0.5],
        "chi_square": 0.0,
        "client_s": 0.01,
        "way_in_s": 0.002,
        "way_out_s": 0.002,
        "framework_s": 0.001,
        "python_s": 0.002,
        "pool_s": 0.0,
        "database_s": 0.003,
        "apart_requests": 100,
        "statements": 1.0,
    },
    "published": {
        "elapsed_s": 20.0,
        "rate_per_s": 20.0,
        "latency_s_median": 0.4,
        "cpu_s": 18.0,
        "body_bytes": 1000.0,
    },
    "herd": {
        "claims": 20,
        "requests": 21,
        "conflicts": 68,
        "updates": 2,
        "exhausted": 1,
        "hosts": 12,
        "overcommitted": 4,
    },
    "operators": {
        "requests": 4,
        "unanswered": 0,
        "candidates": 1000,
        "hosts": 1000,
        "elapsed_s": 4.0,
        "latency_s": 3.0,
        "cpu_s": 3.6,
    },
    "network": {
        "elapsed_s": 0.5,
        "cpu_s": 0.4,
        "client_cpu_s": 0.01,
        "starved_s": 0.0,
        "round_trips": 20,
        "connections": 0,
        "bytes_sent": 2000,
        "bytes_received": 20_000,
        "in_transit_s": 0.1,
        "proxy_cpu_s": 0.001,
        "body_bytes": 5000,
        "trace": {"bin_s": 0.001, "sent": [100, 0, 100], "received": [0, 1000]},
    },
    "study-network": {
        "elapsed_s": 0.5,
        "cpu_s": 0.4,
        "starved_s": 0.0,
        "round_trips": 20,
        "connections": 1,
        "bytes_sent": 2000,
        "bytes_received": 20_000,
        "in_transit_s": 0.1,
        "proxy_cpu_s": 0.001,
        "trace": {"bin_s": 0.001, "sent": [100, 0, 100], "received": [0, 1000]},
    },
    "matrix": {"duration_s": 1.0, "cpu_s": 0.5, "client_cpu_s": 0.1, "body_bytes": 1000, "results": 100},
    "workers": {
        "elapsed_s": 2.0,
        "requests": 40,
        "throughput_per_s": 20.0,
        "latency_s": 0.2,
        "worker_cpu_s": 1.6,
        "backend_cpu_s": 0.4,
        "client_cpu_s": 0.1,
        "pss_bytes": 50 * _MIB,
        "uss_bytes": 40 * _MIB,
        "rss_bytes": 90 * _MIB,
        "unshared_bytes": 8 * _MIB,
        "memory": [[0.0, 50 * _MIB, 40 * _MIB, 90 * _MIB, 0], [0.5, 50 * _MIB, 40 * _MIB, 90 * _MIB, 8 * _MIB]],
    },
    "scaleout": {
        "elapsed_s": 2.0,
        "requests": 100,
        "throughput_per_s": 50.0,
        "latency_s": 0.1,
        "latency_s_p99": 0.2,
        "client_cpu_s": 0.1,
        "cpu_s": {"nginx": 0.1, "hosts": 2.0, "primary": 0.0, "replicas": 0.5},
    },
    "study-matrix": {"elapsed_s": 2.0, "cpu_s": 1.0, "results": 80, "pss_bytes": 50 * _MIB},
    "study-matrix-app": {
        "requests": 400,
        "request_s": 0.004,
        "throughput_per_s": 250.0,
        "p50_s": 0.004,
        "p95_s": 0.006,
        "p99_s": None,
        "cpu_s": 0.003,
        "pss_bytes": 50 * _MIB,
        "client_cpu_share": 0.2,
        "statements": 2.0,
        "rows": 10.0,
        "round_trips": 4.0,
        "bytes_sent": 200.0,
        "body_bytes": 1000.0,
        "results": 10.0,
    },
    "study-saturation": _SATURATION,
    "saturation": {
        **_SATURATION,
        "statuses": {"204": 950, "204 after 409": 50},
        "overload_statuses": {"204": 28, "204 after 409": 2, "409": 5, "TimeoutError": 5},
        "overload_failures": 10,
    },
    "study-workers": {
        "elapsed_s": 2.0,
        "jobs": 40,
        "job_s": 0.05,
        "cpu_s": 1.9,
        "start_s": 0.2,
        "results": 80,
        "uss_bytes": 40 * _MIB,
        "pss_bytes": 50 * _MIB,
        "rss_bytes": 90 * _MIB,
    },
}


def study_head(command: str, **fields: Any) -> RunHead:
    """The head of a complete run of this command, with these fields."""
    return run_head(**{"name": command, "command": command, **fields})


def write_survey(folder: Path, command: str, *, repeats: int = 2) -> Path:
    """A run of this command in *folder*: every point measured so often, each time the same."""
    folder.mkdir(parents=True, exist_ok=True)
    points = POINTS[command]
    impossible = [{"point": dict(points[0]), "reason": "it needs PostgreSQL"}]
    study_head(
        command,
        name=folder.name,
        variants=["naive", "tuned"],
        receipt={"digest": "a41f3f0c9be27d58"},
        manifest={"machine": {"processor": "EPYC"}},
        settings={**SETTINGS[command], "repeats": repeats, "points": list(points), "impossible": impossible},
    ).save(folder / "run.json")
    for repeat in range(repeats):
        for point in points:
            append_lines(folder / "measurements.jsonl", [Measurement(dict(point), repeat, VALUES[command])])
    return folder


def measured_again(
    folder: Path, measurements: Sequence[Measurement], *, points: Sequence[dict[str, Any]] | None = None
) -> Run:
    """The run in *folder*, whose measurements are these instead of its own; with *points*, of these points."""
    if points is not None:
        head = RunHead.load(folder / "run.json")
        replace(head, settings={**head.settings, "points": points, "impossible": []}).save(folder / "run.json")
    (folder / "measurements.jsonl").unlink(missing_ok=True)
    append_lines(folder / "measurements.jsonl", measurements)
    return results.load(folder)


def write_search(folder: Path) -> Path:
    """A search for a rate in *folder* that held 10 arrivals a second and not 20."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = {"p50": 0.1, "p90": 0.2, "p95": 0.3, "p99": None}
    steps = [
        LoadStep(10.0, 100, 0, 10.0, seen, 0.1, 0, "held", ""),
        LoadStep(20.0, 200, 0, 12.0, seen, 0.1, 0, "broken", "x"),
    ]
    made = Saturation("search", "2026-11-21T15:00:00+00:00", "http://127.0.0.1:8000", None, "rate", "p95 <= 0.5s", 1)
    Saturation(**{**vars(made), "status": "complete", "steps": steps}).save(folder / "saturation.json")
    return folder
