"""`placebench lab study saturation` on a real service: instances are claimed and released, and the rates searched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from placebench.compare.load.knee import KneeLoad
from placebench.compare.load.load_steps import Objective
from placebench.compare.measure.databases import database_name
from placebench.compare.what.variants import read_variant
from placebench.lab.inventory.data_sets import SeededData
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.studies.saturation import SaturationStudy
from placebench.lab.studies.study import StudySetup
from placebench.runtime.postgres import Server, open_connection
from placebench.study.saturation import CapacitySeries

ALLOCATED = text("SELECT count(*), sum(used), count(DISTINCT consumer_id) FROM allocations")


@pytest.fixture
def setup(server: Server, tmp_path: Path) -> Iterator[StudySetup]:
    """Eight trees of which some are allocated, and a copy for the variant tuned."""
    data = SeededData(server, find_topology("nested-perfload", trees=8, seed=1, utilization=0.3), tmp_path)
    assert data.copy("tuned")
    yield StudySetup(data, tmp_path)
    for name in (f"{database_name(tmp_path)}_1", database_name(tmp_path)):
        server.drop_database(name)


def allocated(url: str) -> Any:
    """How many allocations there are, of how much, by how many consumers."""
    with open_connection(url) as connection:
        return tuple(connection.execute(ALLOCATED).one())


@pytest.mark.long
def test_loads_claim_and_leave_what_was_there(setup: StudySetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps below the knee and a load at twice of it; allocations end as they were seeded."""

    def two_steps(_: CapacitySeries, name: str, load: KneeLoad, alone_s: float, *, seed: int) -> Any:
        assert ("tuned", True) == (name, alone_s > 0)
        return 5.0, [load.step(rate, seed=seed)[0] for rate in (4.0, 8.0)]

    monkeypatch.setattr(CapacitySeries, "replicate", two_steps)
    request, url = setup.data.topology.request, setup.data.copy("tuned")
    study = SaturationStudy([read_variant("tuned")], Objective("p50", 2.0), request, (2, 1), step_s=0.2, timeout_s=5.0)
    seeded = allocated(url)

    with study.spec(repeats=1).prepare(setup) as measure:
        made = measure({"variant": "tuned"}, 0)

    assert 0 < seeded[0]
    assert seeded == allocated(url)
    assert [4.0, 8.0] == [step["load"] for step in made["steps"]]
    assert sum(step["requests"] for step in made["steps"]) == sum(made["statuses"].values())
    assert made["statuses"]["204"] > 0
    claimed = sum(count for status, count in made["overload_statuses"].items() if status.startswith("204"))
    assert sum(made["overload_statuses"].values()) - claimed == made["overload_failures"]
    assert made["max_per_s"] == made["saturated"]["throughput_per_s"] > 0
