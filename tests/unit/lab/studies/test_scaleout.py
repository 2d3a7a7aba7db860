"""What `lab study scaleout` says, from measurements that a reader can check by hand."""

from pathlib import Path
from typing import Any

import pytest
from fake_survey import POINTS, VALUES, measured_again, write_survey
from reports import document_of

from placebench import results
from placebench.compare.keep.records import Measurement
from placebench.report import write_report


def test_cpu_is_per_request_and_a_core_each_is_extrapolated(tmp_path: Path) -> None:
    """100 requests: 1 ms of nginx, 20 of the hosts and 5 of a replica; a host does 50 /s, two of them 100 /s.

    With 5 hosts a core each would do 250 /s, but that of the replica is used up at 200 /s.
    """
    folder = write_survey(tmp_path / "run", "scaleout")
    five = {"hosts": 5, "replicas": 1}
    made = [*results.load(folder).measurements, Measurement(five, 0, VALUES["scaleout"])]

    run = measured_again(folder, made, points=[*POINTS["scaleout"], five])
    one, two, many = document_of(run)["rows"]

    parts = ("nginx_cpu_s", "hosts_cpu_s", "primary_cpu_s", "replicas_cpu_s", "cpu_s", "cores_used")
    assert [one[name] for name in parts] == pytest.approx([0.001, 0.02, 0.0, 0.005, 0.026, 1.35])
    assert [(row["separate_per_s"], row["limited_by"]) for row in (one, two, many)] == [
        (pytest.approx(50), "hosts"),
        (pytest.approx(100), "hosts"),
        (pytest.approx(200), "replicas"),
    ]


def test_throughput_is_drawn_by_hosts_beside_as_many_replicas(tmp_path: Path) -> None:
    """1, 2 and 4 hosts beside one replica do 20, 32 and 40 /s; a single number of replicas is no line."""
    folder = write_survey(tmp_path / "run", "scaleout")
    rates = {1: 20.0, 2: 32.0, 4: 40.0}
    points: list[dict[str, Any]] = [{"hosts": hosts, "replicas": 1} for hosts in rates]
    made = [
        Measurement(point, repeat, {**VALUES["scaleout"], "throughput_per_s": rate})
        for repeat in range(3)
        for point, rate in zip(points, rates.values(), strict=True)
    ]

    document = document_of(measured_again(folder, made, points=points))
    page = write_report(folder).read_text()

    assert document["headline"].startswith("1 to 4 hosts on this machine, 1 replica: 20.0 /s to 40.0 /s")
    assert ("Throughput by hosts, 1 replica" in page, "Throughput by replicas" in page) == (True, False)
