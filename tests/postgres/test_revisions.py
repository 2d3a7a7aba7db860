"""Two revisions of a small application, compared: one asks for each provider, the other for all at once."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from git_repository import commit_all, git
from reports import document_of

from placebench import results
from placebench.compare.compare_run import CompareRun, CompareSettings
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.what.variants import VariantTable, VariantTables, read_variants
from placebench.errors import GateFailedError
from placebench.lab.inventory.data_sets import TopologyData
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.placement_api import placement_workload
from placebench.report import build_report, parse_gates, raise_for_gates, write_report
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.long

TOPOLOGY = find_topology("nested-perfload", trees=2, seed=1)
SHOP = """
import os
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])

def names_of(connection):
    {body}

def app(environ, start_response):
    with engine.connect() as connection:
        body = " ".join(names_of(connection)).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
ONE_BY_ONE = """ids = connection.scalars(text("SELECT id FROM resource_providers ORDER BY id")).all()
    by_id = text("SELECT name FROM resource_providers WHERE id = :id")
    return [connection.scalar(by_id, {"id": each}) for each in ids]"""
AT_ONCE = """return connection.scalars(text("SELECT name FROM resource_providers ORDER BY id")).all()"""


def repository(folder: Path) -> Path:
    """The slow way first, tagged; then the quick one."""
    folder.mkdir()
    for tag, body in (("slow", ONE_BY_ONE), ("quick", AT_ONCE)):
        (folder / "shop.py").write_text(SHOP.replace("{body}", body))
        commit_all(folder, tag, tag=tag)
    return folder


def test_two_revisions_of_an_application(server: Server, tmp_path: Path) -> None:
    """One statement against 15, under the same interleaving: the gate fails, and both flames name what changed."""
    shop = repository(tmp_path / "shop")
    app = VariantTable(app="shop:app", python=sys.executable, env={"SQLALCHEMY_DATABASE_URL": "{database_url}"})
    variants = read_variants(["quick", "slow"], VariantTables(app=app, folder=shop))
    folder = claim_folder(tmp_path / "revisions")
    settings = CompareSettings(
        variants, placement_workload("/names"), replicates=1, rounds=1, block_s=0.02, counted_requests=6
    )
    CompareRun(TopologyData(TOPOLOGY), settings, folder, server).run(lambda _: None)
    run = results.load(folder)
    statements = next(each for each in document_of(run)["comparisons"] if each["metric"] == "statements")

    assert (statements["baseline_value"], statements["variant_value"]) == (1, 15)
    assert statements["verdict"] == "slower"
    assert [len(block.wall_s) > 0 for block in run.blocks if not block.invalid] == [True] * 4
    assert {variant: watched.reason for variant, watched in run.profiled.items()} == {"slow": "", "quick": ""}
    session = run.session("slow")
    assert session is not None
    assert any("names_of" in frame for stack, _ in session.frame_records for frame in stack)
    page = write_report(folder).read_text()
    assert "SELECT … resource_providers" in page
    assert "not measured of a program that is not ours" not in page
    assert "the same from quick and slow</dd>" in page
    assert not (folder / "sources").exists()

    report = build_report(folder, parse_gates(["statements <= 1x", "bytes_sent >= 1"]))
    write_report(report)
    with pytest.raises(GateFailedError, match=r"gate 'statements <= 1x' failed for slow: \+1400 %"):
        raise_for_gates(report)
    assert "| `statements <= 1x` | slow | **failed** |" in (folder / "summary.md").read_text()
    assert ElementTree.parse(folder / "junit.xml").getroot().attrib["failures"] == "1"
    assert len(git(shop, "worktree", "list").splitlines()) == 1
