"""The published headline asked again: as many requests as asked for, a ratio only on the same data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from failed_points import REASON, with_failures
from reports import document_of

from placebench import results
from placebench.compare.keep.records import Measurement, RunHead, append_lines
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.what.variants import Variant
from placebench.errors import PlacebenchError, VariantError
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.studies.published import PublishedStudy, find_services, services
from placebench.lab.studies.study import StudyRun
from placebench.report import write_report
from placebench.runtime.postgres import Server
from placebench.study.overheads import paired_ratio

TOPOLOGY = find_topology("nested-perfload", trees=1, seed=1)


@pytest.mark.long
def test_the_headline(server: Server, tmp_path: Path, documented: Callable[[str], set[str]]) -> None:
    """10 requests by 1 client, 400 by 40, and no ratio of one tree to the published thousand; what is missing is told.

    The same figures from 1000 trees have one: 2.9 times what they were published as.
    """
    study = PublishedStudy({"dedup": find_services(["dedup"])["dedup"], "placement": "it is not installed"}, [TOPOLOGY])
    folder = claim_folder(tmp_path / "headline")

    StudyRun(study.spec(repeats=1), TOPOLOGY, folder, server).run(lambda _: None)
    write_report(folder)
    document = document_of(results.load(folder))

    assert [("dedup", 1, 10), ("dedup", 40, 400)] == [
        (row["service"], row["clients"], row["requests"]) for row in document["rows"]
    ]
    assert documented("published") <= set(document["rows"][0])
    assert [0.7, 2.9] == [row["published_after_per_s"] for row in document["rows"]]
    assert {None} == {row["ratio"] for row in document["rows"]}
    assert ["it is not installed"] * 2 == [each["reason"] for each in document["impossible"]]

    replace(RunHead.load(folder / "run.json"), trees=1000).save(folder / "run.json")
    values = {"elapsed_s": 20.0, "rate_per_s": 20.0, "latency_s_median": 1.0, "cpu_s": 8.0, "body_bytes": 100}
    (folder / "measurements.jsonl").unlink()
    point = {"service": "dedup", "topology": "nested-perfload", "clients": 40}
    append_lines(folder / "measurements.jsonl", [Measurement(point, 0, {**values})])
    row = document_of(results.load(folder))["rows"][0]
    assert (20.0 / 2.9, 0.02, 20.0) == (row["ratio"], row["cpu_s_per_request"], row["rate_per_s"])
    for failed, rows in with_failures(folder):
        assert [each["reason"] for each in rows].count(REASON) == failed


def test_the_services_are_those_before_and_after() -> None:
    """Before the optimizations and after them, the other algorithms, and the real Placement."""
    assert services() == ("naive", "tuned", "dedup", "cached", "placement")


def test_flat_trees_are_measured_as_they_were_published() -> None:
    """By one client; nested ones also by 40."""
    topologies = [find_topology(name, trees=1, seed=1) for name in ("nested-perfload", "flat-perfload")]

    points = PublishedStudy(find_services(["naive"]), topologies).spec(repeats=1).points

    assert [(each["topology"], each["clients"]) for each in points] == [
        ("nested-perfload", 1),
        ("nested-perfload", 40),
        ("flat-perfload", 1),
    ]


def test_throughputs_are_compared_within_repeats() -> None:
    """Twice as fast in each of six repeats, whose own throughputs vary by a factor of 10; five have no interval."""
    before = {repeat: 10.0 ** (repeat % 2) for repeat in range(6)}
    after = {repeat: 2 * rate for repeat, rate in before.items()}

    assert paired_ratio("times_naive", after, before) == pytest.approx(
        {"times_naive": 2, "times_naive_low": 2, "times_naive_high": 2}
    )
    assert (
        paired_ratio("times_naive", {repeat: after[repeat] for repeat in range(5)}, before)["times_naive_low"] is None
    )


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    """An unknown service ends it, as does a Python that was named and is not there."""
    assert isinstance(find_services(["naive"])["naive"], Variant)
    with pytest.raises(VariantError, match="no variant 'fast'"):
        find_services(["fast"])
    with pytest.raises(PlacebenchError, match="no Python at"):
        find_services(["placement"], placement_python=tmp_path / "python")
