"""A survey from beginning to end on a real PostgreSQL: order, what does not count, resuming."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from placebench import results
from placebench.compare.keep.run_folder import claim_folder, discard_message
from placebench.errors import LoadError, PlacebenchError, RunFolderError, UndecidedError
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.studies.study import StudyRun, StudySetup, StudySpec
from placebench.report.effects import status_sentences
from placebench.report.study_report import failed
from placebench.runtime.postgres import Server, open_server
from placebench.study.session import Measure, Point, Restartable, in_order

TOPOLOGY = find_topology("nested-perfload", trees=2, seed=1)
POINTS = ({"table": "resource_providers"}, {"table": "inventories"})


def rows(url: str, table: str) -> int:
    """How many rows the table has."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return int(connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


@contextmanager
def counting(setup: StudySetup) -> Iterator[Measure]:
    """Counts rows in a copy of the seeded database."""
    url = setup.data.copy("counted")
    yield lambda point, _: {"rows": rows(url, point["table"])}


def question(prepare: Any = counting, repeats: int = 2) -> StudySpec:
    """How many rows are there?"""
    return StudySpec("rows", POINTS, repeats, prepare, TOPOLOGY.request)


def test_every_point_is_measured_in_each_repeat(server: Server, tmp_path: Path) -> None:
    """Two points twice are four measurements, the second repeat backwards: 14 providers, 18 inventories."""
    folder = claim_folder(tmp_path / "rows")

    StudyRun(question(), TOPOLOGY, folder, server).run(discard_message)
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
        StudyRun(question(), TOPOLOGY, claim_folder(tmp_path / "rows"), stock).run(discard_message)
    head = results.load(tmp_path / "rows").head

    reason = "max_parallel_workers_per_gather is 2: parallel workers come and go unseen"
    assert head.manifest["server_cpu"] == reason
    assert status_sentences(head) == [f"Server CPU was not measured: {reason}."]


def test_a_survey_that_was_killed_goes_on(server: Server, tmp_path: Path) -> None:
    """A line that a kill cut short is measured again, the whole ones are kept; another question is refused."""
    folder = claim_folder(tmp_path / "resumed")
    StudyRun(question(), TOPOLOGY, folder, server).run(discard_message)
    path = folder / "measurements.jsonl"
    before = path.read_text()
    path.write_text(before[:-20])

    again = StudyRun(question(), TOPOLOGY, folder, server)
    steps = again.steps
    again.run(discard_message)

    assert (2, before) == (steps, path.read_text())
    with pytest.raises(RunFolderError, match="holds a run that differs in its settings"):
        StudyRun(question(repeats=3), TOPOLOGY, folder, server)


class Dying:
    """Measures each table with the number of its rows, after it has failed so often."""

    def __init__(self, **failures: int) -> None:
        self._failures = failures

    @contextmanager
    def prepare(self, _: StudySetup) -> Iterator[Measure]:
        """Shares nothing."""
        yield self._measure

    def _measure(self, point: Point, _: int) -> dict[str, Any]:
        self._failures[point["table"]] -= 1
        if self._failures[point["table"]] >= 0:
            raise LoadError("the link dropped")
        return {"rows": 1}


def test_a_point_that_fails_is_left_out_and_the_others_go_on(server: Server, tmp_path: Path) -> None:
    """One that failed once is measured again; one that failed three times in a row is left out.

    The same failure is printed once.

    --resume tries it anew, and only what is missing.
    """
    folder, said, notes = claim_folder(tmp_path / "dying"), list[str](), list[str]()
    dying = question(Dying(resource_providers=1, inventories=3).prepare)

    first = StudyRun(dying, TOPOLOGY, folder, server)
    steps = first.steps
    first.run(said.append, notes.append)
    begun = results.load(folder)
    StudyRun(dying, TOPOLOGY, folder, server).run(discard_message)
    resumed = results.load(folder)

    assert steps == len(said) == 5
    assert [step for step in said if "left out" in step] == [
        "repeat 2 of 2: table inventories: left out, it failed before"
    ]
    assert notes.count("table inventories failed: the link dropped") == 1
    assert begun.head.status == "complete"
    assert [point for point, _ in failed(begun)] == [{"table": "inventories"}]
    assert sum(each.invalid is None for each in begun.measurements) == 2
    assert list(failed(resumed)) == []
    assert sum(each.invalid is None for each in resumed.measurements) == 4


def test_a_survey_of_which_nothing_can_be_measured(server: Server, tmp_path: Path) -> None:
    """There is nothing to be shown: the environment's fault, with the first reason, after each point was tried."""
    folder = claim_folder(tmp_path / "nothing")
    dying = question(Dying(resource_providers=9, inventories=9).prepare)

    with pytest.raises(PlacebenchError, match=r"nothing could be measured; table .*: the link dropped") as raised:
        StudyRun(dying, TOPOLOGY, folder, server).run(discard_message)

    assert raised.value.exit_code == 2
    assert [each.invalid for each in results.load(folder).measurements] == ["the link dropped"] * 6


def test_a_database_that_is_gone_ends_the_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL is killed at the second point: the first one stays, and the others are not tried in vain."""
    monkeypatch.delenv("PLACEBENCH_DATABASE_URL", raising=False)
    folder = claim_folder(tmp_path / "gone")
    with open_server() as own:

        def say(step: str) -> None:
            if step.startswith("repeat 2") and own.pid:
                with suppress(ProcessLookupError):
                    os.kill(own.pid, signal.SIGKILL)

        with pytest.raises(UndecidedError, match="the database is gone"):
            StudyRun(question(repeats=3), TOPOLOGY, folder, own).run(say)
    run = results.load(folder)

    assert run.head.status == "failed"
    assert sum(each.invalid is None for each in run.measurements) == 2
    assert {each.repeat for each in run.measurements if each.invalid} == {1}


def test_what_measurements_share_is_begun_anew_after_a_failure() -> None:
    """Begun with the first, shared by the second, ended by the third, which fails; the fourth has another one."""
    ended: list[int] = []
    numbers = itertools.count()

    @contextmanager
    def begin() -> Iterator[int]:
        number = next(numbers)
        yield number
        ended.append(number)

    def use(*, fails: bool = False) -> int:
        with suppress(LoadError), shared.in_use() as number:
            if fails:
                raise LoadError("died")
        return number

    with Restartable(begin) as shared:
        seen = [use(), use(), use(fails=True), use()]

    assert [0, 0, 0, 1] == seen
    assert [0, 1] == ended


def test_the_order_is_the_seeds() -> None:
    """The same seed gives the same order, and the second repeat is the first one backwards."""
    points = [{"n": number} for number in range(6)]

    assert in_order(points, 0, seed=7) == in_order(points, 0, seed=7)
    assert in_order(points, 0, seed=7)[::-1] == in_order(points, 1, seed=7)
    assert in_order(points, 0, seed=7) != in_order(points, 0, seed=8)
