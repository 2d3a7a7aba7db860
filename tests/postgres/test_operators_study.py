"""The studies of the real Placement, with what stands in for it: the reference service under its names."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reports import document_of

from placebench import results
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.what.variants import Variant, read_variant
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.studies.herd import HerdStudy
from placebench.lab.studies.operators import OperatorsStudy, Setting
from placebench.lab.studies.study import StudyRun
from placebench.lab.variants import PLACEMENT
from placebench.runtime.postgres import Server

STAND_IN = Path(__file__).parents[1] / "fakes" / "stand_in"


@pytest.fixture
def placement(monkeypatch: pytest.MonkeyPatch) -> Variant:
    """The reference service, found as `placement`."""
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN), prepend=os.pathsep)
    return read_variant(PLACEMENT, python=Path(sys.executable))


@pytest.mark.long
def test_every_claim_of_the_herd_has_a_host_of_its_own_on_bare_metal(
    server: Server, placement: Variant, tmp_path: Path, documented: Callable[[str], set[str]]
) -> None:
    """8 claims by 4 schedulers on 8 hosts for one: all 8, none over capacity; what was claimed is released."""
    topology = find_topology("bare-metal", trees=8, seed=1)
    study, folder = HerdStudy(placement, [topology], [4], claims=8), claim_folder(tmp_path / "herd")

    StudyRun(study.spec(repeats=1), topology, folder, server).run(lambda _: None)

    rows = document_of(results.load(folder))["rows"]
    assert [False, True] == [row["randomized"] for row in rows]
    assert [(8, 0)] * 2 == [(row["hosts"], row["overcommitted"]) for row in rows]
    assert documented("herd") <= set(rows[0])


@pytest.mark.long
def test_a_setting_is_measured_against_placement_as_installed(
    server: Server, placement: Variant, tmp_path: Path, documented: Callable[[str], set[str]]
) -> None:
    """Candidates and hosts are those of the limit; a frozen Placement serves too."""
    topology = find_topology("flat-hosts", trees=30, seed=1)
    settings = [Setting("as installed"), Setting("limit=10", limit=10), Setting("frozen", freeze=True)]
    study, folder = OperatorsStudy(placement, [topology], settings, 1, 60.0), claim_folder(tmp_path / "operators")

    StudyRun(study.spec(repeats=1), topology, folder, server).run(lambda _: None)

    rows = {row["setting"]: row for row in document_of(results.load(folder))["rows"]}
    assert {"as installed": (30, 30), "limit=10": (10, 10), "frozen": (30, 30)} == {
        name: (row["candidates"], row["hosts"]) for name, row in rows.items()
    }
    assert all(row["latency_s"] > 0 and row["unanswered"] == 0 for row in rows.values())
    assert documented("operators") <= set(rows["frozen"])


@pytest.mark.long
def test_a_response_that_does_not_come_in_time_is_counted(server: Server, placement: Variant, tmp_path: Path) -> None:
    """The first request, which warms up, already has none."""
    topology = find_topology("flat-hosts", trees=30, seed=1)
    study = OperatorsStudy(placement, [topology], [Setting("as installed")], 1, timeout_s=0.001)
    folder = claim_folder(tmp_path / "late")

    StudyRun(study.spec(repeats=1), topology, folder, server).run(lambda _: None)

    (row,) = document_of(results.load(folder))["rows"]
    assert (1, 1, None) == (row["requests"], row["unanswered"], row["cpu_s_per_request"])
