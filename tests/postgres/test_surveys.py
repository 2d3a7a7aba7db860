"""A survey from beginning to end on a real PostgreSQL: order, what does not count, resuming."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from placebench import results
from placebench.errors import LoadError, RunFolderError, UndecidedError
from placebench.experiment.kept import claim_folder
from placebench.experiment.surveys import Ground, Measure, Question, Surveying, in_order
from placebench.postgres import Server, open_server
from placebench.report.words import unmeasured
from placebench.seeding import topology_named

TOPOLOGY = topology_named("nested-perfload", trees=2, seed=1)
POINTS = ({"table": "resource_providers"}, {"table": "inventories"})


def rows(url: str, table: str) -> int:
    """How many rows the table has."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return int(connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


@contextmanager
def counting(ground: Ground) -> Iterator[Measure]:
    """Counts rows in a copy of the seeded database."""
    url = ground.copy("counted")
    yield lambda point, _: {"rows": rows(url, point["table"])}


def question(prepare: Any = counting, repeats: int = 2) -> Question:
    """How many rows are there?"""
    return Question("rows", POINTS, repeats, prepare, TOPOLOGY.request)


def nobody(_: str) -> None:
    """Does not listen to the steps."""


def test_every_point_is_measured_in_each_repeat(server: Server, tmp_path: Path) -> None:
    """Two points twice are four measurements, the second repeat backwards: 14 providers, 18 inventories."""
    folder = claim_folder(tmp_path / "rows")

    Surveying(question(), Ground(server, TOPOLOGY, folder)).run(nobody)
    run = results.load(folder)

    assert ("complete", "rows") == (run.head.status, run.head.command)
    assert [0, 0, 1, 1] == [each.repeat for each in run.measurements]
    assert [each.point for each in run.measurements[:2]] == [each.point for each in run.measurements[:1:-1]]
    assert {"resource_providers": 14, "inventories": 18} == {
        each.point["table"]: each.values["rows"] for each in run.measurements
    }


def test_who_asks_is_told_why_there_is_no_server_cpu(server: Server, tmp_path: Path) -> None:
    """In the manifest, on the page and on the terminal."""
    if server.kind == "named":
        pytest.skip("settings are for a server of ours")
    with open_server(settings={"max_parallel_workers_per_gather": "2"}) as stock:
        Surveying(question(), Ground(stock, TOPOLOGY, claim_folder(tmp_path / "rows"))).run(nobody)
    head = results.load(tmp_path / "rows").head

    reason = "max_parallel_workers_per_gather is 2: parallel workers come and go unseen"
    assert head.manifest["server_cpu"] == reason
    assert unmeasured(head) == f"Server CPU was not measured: {reason}."


def test_a_survey_that_was_killed_goes_on(server: Server, tmp_path: Path) -> None:
    """A line that a kill cut short is measured again, the whole ones are kept; another question is refused."""
    folder = claim_folder(tmp_path / "resumed")
    Surveying(question(), Ground(server, TOPOLOGY, folder)).run(nobody)
    path = folder / "measurements.jsonl"
    before = path.read_text()
    path.write_text(before[:-20])

    again = Surveying(question(), Ground(server, TOPOLOGY, folder))
    steps = again.steps
    again.run(nobody)

    assert (2, before) == (steps, path.read_text())
    with pytest.raises(RunFolderError, match="holds a run with another settings"):
        Surveying(question(repeats=3), Ground(server, TOPOLOGY, folder))


def test_what_died_does_not_count(server: Server, tmp_path: Path) -> None:
    """A point that fails once is measured again; one that fails three times in a row ends the survey, undecided."""
    folder = claim_folder(tmp_path / "dying")
    failures = {"resource_providers": 1, "inventories": 3}

    @contextmanager
    def dying(ground: Ground) -> Iterator[Measure]:
        yield die

    def die(point: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        failures[point["table"]] -= 1
        if failures[point["table"]] >= 0:
            raise LoadError("the link dropped")
        return {"rows": 1}

    with pytest.raises(UndecidedError, match="table inventories could not be measured 3 times in a row"):
        Surveying(question(dying), Ground(server, TOPOLOGY, folder)).run(nobody)

    run = results.load(folder)
    lost = [each.point["table"] for each in run.measurements if each.invalid == "LoadError: the link dropped"]
    assert "failed" == run.head.status
    assert 3 == lost.count("inventories")


def test_the_order_is_the_seeds() -> None:
    """The same seed gives the same order, and the second repeat is the first one backwards."""
    points = [{"n": number} for number in range(6)]

    assert in_order(points, 0, seed=7) == in_order(points, 0, seed=7)
    assert in_order(points, 0, seed=7)[::-1] == in_order(points, 1, seed=7)
    assert in_order(points, 0, seed=7) != in_order(points, 0, seed=8)
