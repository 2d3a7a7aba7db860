"""A matrix from beginning to end: servers, clients and databases that all answer alike, or no speed."""

import json
import zipfile
from pathlib import Path

import pytest
import sqlalchemy
from reports import document_of, text_of

from placebench import results
from placebench.cli import main
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.what.variants import VariantTable, VariantTables
from placebench.errors import GateFailedError
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.studies.matrix_plan import Job, Matrix
from placebench.lab.studies.matrix_run import combine, matrix_study
from placebench.lab.studies.study import StudyRun
from placebench.report import write_report
from placebench.results import Run
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.long

TOPOLOGY = find_topology("nested-perfload", trees=3, seed=1)
VERSIONS = ["installed", "9.9", "9.8"]
ELSEWHERE = Path(__file__).parents[1] / "processes" / "compare"


def surveyed(server: Server, folder: Path, matrix: Matrix) -> Run:
    """The run of this matrix, once each, however it ended."""
    spec = matrix_study(matrix, combine(matrix), request=TOPOLOGY.request, repeats=1)
    try:
        StudyRun(spec, TOPOLOGY, claim_folder(folder), server).run(lambda _: None)
    finally:
        write_report(folder)
    return results.load(folder)


def test_servers_clients_and_users(server: Server, tmp_path: Path) -> None:
    """One result is one candidate: 3 trees answer 6, so 4 requests have 24, whoever serves and asks."""
    axes = {"server": ["wsgiref", "gunicorn"], "client": ["in-process", "http"], "users": [1, 2], "threads": [2]}
    matrix = Matrix("mine", "What?", axes, {}, [Job(4, 3)])

    document = document_of(run := surveyed(server, tmp_path / "matrix", matrix))
    rows = document["rows"]

    assert 4 == len(rows)
    assert {24} == {row["results"] for row in rows}
    assert all(row["duration_s"] > 0 and row["cpu_s"] > 0 and row["n"] == 1 for row in rows)
    assert 4 == len(document["impossible"])
    assert "a client in the process has no server" in text_of(run)
    assert run.head.same_responses["equal"] is True


def test_a_job_has_its_own_trees_and_the_profiler_its_cost(server: Server, tmp_path: Path) -> None:
    """1 tree answers 2 candidates, 3 trees 6; the overhead is the difference from the row with the profiler off."""
    axes = {"server": ["none"], "client": ["in-process"], "database": ["sqlite"], "profiler": ["light"]}
    matrix = Matrix("mine", "What?", axes, {"profiler": "off"}, [Job(1, 1), Job(2, 3)])

    rows = document_of(surveyed(server, tmp_path / "matrix", matrix))["rows"]

    assert [("light", 2), ("off", 2), ("light", 12), ("off", 12)] == [(row["profiler"], row["results"]) for row in rows]
    assert all(row["versions"]["driver"].startswith("sqlite") for row in rows)
    assert rows[0]["overhead_s"] == rows[0]["duration_s"] - rows[1]["duration_s"]
    assert [False, True] == [row["is_control"] for row in rows[:2]]


def test_latency_is_an_axis(server: Server, tmp_path: Path) -> None:
    """Each round trip to the database takes 10 ms through two proxies of 5 ms; the overhead is over none in between.

    Each service takes one round trip per request at least.
    """
    axes = {"service": ["naive", "tuned"], "server": ["none"], "client": ["in-process"], "latency_ms": [5]}
    matrix = Matrix("mine", "?", {**axes, "proxies": [2]}, {"latency_ms": 0}, [Job(2, 1)])

    rows = document_of(run := surveyed(server, tmp_path / "matrix", matrix))["rows"]
    overhead_s = {row["service"]: row["overhead_per_request_s"] for row in rows if row["latency_ms"] == 5}

    assert [0, 5] == sorted({row["latency_ms"] for row in rows})
    assert ["naive", "tuned"] == sorted(overhead_s)
    assert 0.01 <= min(overhead_s.values())
    assert run.head.same_responses["equal"] is True


def test_a_version_is_put_before_what_is_installed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SQLAlchemy 9.9 that cannot be imported, and a 9.8 that pip does not find: both are rows with their reasons.

    The installed one, which is measured all the same, is where it was.
    """
    with zipfile.ZipFile(tmp_path / "sqlalchemy-9.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sqlalchemy/__init__.py", "raise ImportError('this is 9.9')")
        wheel.writestr("sqlalchemy-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: sqlalchemy\nVersion: 9.9\n")
        wheel.writestr("sqlalchemy-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("sqlalchemy-9.9.dist-info/RECORD", "")
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    lite = {"server": ["none"], "client": ["in-process"], "database": ["sqlite"]}

    run = surveyed(server, tmp_path / "run", Matrix("mine", "?", {**lite, "sqlalchemy": VERSIONS}, {}, [Job(1, 1)]))
    installed, new, absent = document_of(run)["rows"]

    assert (installed["reason"], installed["versions"]["sqlalchemy"]) == (None, sqlalchemy.__version__)
    assert (new["n"], new["versions"]["sqlalchemy"]) == (None, "9.9")
    assert new["reason"].endswith("this is 9.9")
    assert absent["reason"].startswith("pip cannot install sqlalchemy==9.8")
    assert [each.point["sqlalchemy"] for each in run.measurements if each.invalid is None] == ["installed"]


def test_a_combination_that_cannot_start_is_a_row_with_its_reason(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An application that is not there: the others are measured, exit code 0; --resume finds it there and measures it.

    With nothing but that application nothing can be shown: exit code 2.
    """
    mine = (
        f"[variants.mine]\napp = 'absent:application'\npath = '{tmp_path}'\nenv = {{ PLACEBENCH_VARIANT = 'tuned' }}\n"
    )
    axes = "server = ['wsgiref']\ndatabase = ['sqlite']\n[control]\n[[jobs]]\nrequests = 1\ntrees = 1"
    (tmp_path / "both.toml").write_text(f"{mine}[axes]\nservice = ['tuned', 'mine']\n{axes}")
    (tmp_path / "mine.toml").write_text(f"{mine}[axes]\nservice = ['mine']\n{axes}")

    common = ("-n", "2", "--server", server.url, "--json")

    def matrix(name: str, *options: str) -> int:
        return main(
            ["lab", "study", "matrix", f"{tmp_path}/{name}.toml", "--out", f"{tmp_path}/{name}", *common, *options]
        )

    alone = matrix("mine"), capsys.readouterr().err.splitlines()[-1]
    begun = matrix("both"), json.loads(capsys.readouterr().out)["rows"]
    text, page = (text_of(results.load(tmp_path / "both")), (tmp_path / "both" / "index.html").read_text())
    (tmp_path / "absent.py").write_text("from placebench.lab.reference.wsgi import application")
    resumed = matrix("both", "--resume"), json.loads(capsys.readouterr().out)["rows"]

    assert alone[0] == 2
    assert alone[1].startswith("placebench lab study matrix: nothing could be measured; service mine")
    assert (begun[0], [row["n"] for row in begun[1]]) == (0, [2, None])
    assert begun[1][1]["reason"].startswith("wsgiref could not serve absent:application")
    assert begun[1][1]["service"] == "mine"
    assert begun[1][1].keys() == begun[1][0].keys()
    assert text.count("  not measured: service mine") == 1
    assert page.count("wsgiref could not serve absent:application") == 1
    assert (resumed[0], [(row["n"], row["reason"]) for row in resumed[1]]) == (0, [(2, None), (2, None)])


def test_no_speed_where_answers_differ(server: Server, tmp_path: Path) -> None:
    """An application that answers the same request with something else ends the matrix: no row is shown."""
    axes = {
        "service": ["tuned", "elsewhere"],
        "server": ["none"],
        "client": ["in-process"],
        "database": ["sqlite"],
    }
    table = VariantTable(app="small_app:application", path=str(ELSEWHERE))
    matrix = Matrix("mine", "What?", axes, {}, [Job(1, 3)], tables=VariantTables({"elsewhere": table}))

    with pytest.raises(GateFailedError, match="responds differently from"):
        surveyed(server, tmp_path / "matrix", matrix)

    document = document_of(results.load(tmp_path / "matrix"))
    assert [] == document["rows"]
    assert document["headline"].startswith("No speed is shown: ")
