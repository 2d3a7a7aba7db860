"""MariaDB beside PostgreSQL: a server of our own, the same rows in both, and the same responses in the matrix."""

from pathlib import Path

import psutil
import pytest
from reports import document_of

from placebench import results
from placebench.errors import DatabaseError
from placebench.experiment.combinations import combine
from placebench.experiment.matrix_plan import Job, Matrix
from placebench.experiment.matrix_study import matrix_study
from placebench.experiment.run_folder import claim_folder
from placebench.experiment.study import StudyRun
from placebench.measure.meters import Backends, inspect_backends
from placebench.runtime.mariadb import MariaDbServer, temporary_mariadb
from placebench.runtime.postgres import Server
from placebench.seeding import data_digest, find_topology, seed

TOPOLOGY = find_topology("nested-perfload", trees=3, seed=1, utilization=0.5)


def test_a_server_is_gone_with_its_folder(mariadb: MariaDbServer) -> None:
    """The one process of all its databases is ours to meter while it runs, is not root's, and ends with the block."""
    with temporary_mariadb() as server:
        url = server.database("mine")
        seen = inspect_backends(url)
        assert isinstance(seen, Backends)
        ((pid, cpu_s),) = seen.cpu_s.items()
        process = psutil.Process(pid)
        folder = Path(
            next(each for each in process.cmdline() if each.startswith("--datadir=")).partition("=")[2]
        ).parent
        users = process.uids()
        assert folder.is_dir()

    assert cpu_s > 0
    assert 0 not in users
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    with pytest.raises(DatabaseError):
        inspect_backends(url)
    assert inspect_backends(mariadb.database("another")) != seen


def test_the_same_rows_as_in_postgresql(mariadb: MariaDbServer, database_url: str) -> None:
    """Seeded by SQL, read back with one digest; the second time nothing is done."""
    url = mariadb.database("seeded")
    receipt = seed(TOPOLOGY, url, loader="sql")

    assert receipt == seed(TOPOLOGY, url, loader="sql")
    assert receipt.digest == data_digest(url) == seed(TOPOLOGY, database_url).digest


def test_the_matrix_compares_it(mariadb: MariaDbServer, server: Server, tmp_path: Path) -> None:
    """naive and tuned respond as on PostgreSQL, and what the server's process takes is in the CPU of a row."""
    axes = {"service": ["naive", "tuned", "cached"], "server": ["wsgiref"], "database": ["mariadb"]}
    matrix = Matrix("mine", "What?", axes, {"database": "postgresql"}, [Job(2, 3)])
    spec = matrix_study(matrix, combine(matrix), request=TOPOLOGY.request, repeats=1)

    StudyRun(spec, TOPOLOGY, claim_folder(tmp_path / "run"), server).run(lambda _: None)
    document = document_of(run := results.load(tmp_path / "run"))
    rows = document["rows"]

    assert [("naive", "mariadb"), ("naive", "postgresql"), ("tuned", "mariadb"), ("tuned", "postgresql")] == [
        (row["service"], row["database"]) for row in rows if row["service"] != "cached"
    ]
    assert all(row["reason"] is None and row["cpu_s"] > 0 for row in rows)
    assert rows[0]["versions"]["driver"].startswith("PyMySQL ")
    assert rows[0]["overhead_per_request_s"] == rows[0]["overhead_s"] / 2
    assert ["cached runs on PostgreSQL alone"] == [each["reason"] for each in document["impossible"]]
    assert run.head.same_responses["equal"] is True
