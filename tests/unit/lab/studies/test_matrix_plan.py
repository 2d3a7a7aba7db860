"""Matrices as files: what they ask, what cannot be run and why, and what is wrong with a file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from placebench.compare.what.source_checkout import Origin
from placebench.compare.what.variants import VariantTable, VariantTables, read_variant
from placebench.errors import PlacebenchError, VariantError
from placebench.lab.studies.matrix_plan import AXES, Job, Matrix, matrix_named, names
from placebench.lab.studies.matrix_run import Combination, Installed, combine
from placebench.runtime import mariadb

pytestmark = pytest.mark.processes

HERE = Installed("/usr/bin/python", {"placebench": "1", "psycopg2": "2.9", "gunicorn": "23"}, uwsgi=True)
JOB = {"requests": 2, "trees": 3}
TABLES = VariantTables({"own": VariantTable(app="a:b"), "jit": VariantTable(variant="tuned", pg={"jit": True})})


def reason(installed: Installed = HERE, **values: Any) -> str | None:
    """Why the usual combination with these values cannot be run."""
    point = {**AXES, **values}
    return Combination(point, read_variant(point["service"], TABLES), installed).reason


def test_every_control_is_a_point() -> None:
    """Two services under two profilers are four combinations; their controls are two more, each asked once."""
    matrix = Matrix("m", "?", {"service": ["naive", "tuned"], "profiler": ["light", "full"]}, {"profiler": "off"}, [])
    matrix = Matrix(**{**vars(matrix), "jobs": [Job(2, 3)]})

    assert [
        {"profiler": "light", "service": "naive", **JOB},
        {"profiler": "off", "service": "naive", **JOB},
        {"profiler": "full", "service": "naive", **JOB},
        {"profiler": "light", "service": "tuned", **JOB},
        {"profiler": "off", "service": "tuned", **JOB},
        {"profiler": "full", "service": "tuned", **JOB},
    ] == matrix.points


def test_jobs_keep_their_proportion() -> None:
    """Trees are of the largest job: 50 and 200 become 5 and 20, never none."""
    matrix = Matrix("m", "?", {}, {}, [Job(1, 1), Job(1, 50), Job(1, 200)])

    assert [Job(1, 1), Job(1, 5), Job(1, 20)] == matrix.scaled(20).jobs


@pytest.mark.parametrize("name", ["latency", "mariadb", "profiler", "pythons", "sqlite", "stack"])
def test_those_that_come_along(name: str) -> None:
    """Three sizes of job, at least 16 and at most 32 times apart for each tree, against a control."""
    matrix = matrix_named(name)
    requests = [job.requests for job in matrix.jobs]

    assert name in names()
    assert 3 == len(matrix.jobs)
    assert 16 <= max(requests) / min(requests) <= 32
    assert matrix.control
    assert len(matrix_named(name, quick=True).points) < len(matrix.points)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"client": "in-process"}, "a client in the process has no server: it goes with server none"),
        ({"server": "none"}, "a client over http needs a server"),
        ({"client": "in-process", "server": "none", "users": 2}, "in the process requests come one by one: .*"),
        ({"server": "wsgiref", "processes": 2}, "wsgiref serves in one process"),
        ({"database": "none"}, "tuned needs a database"),
        ({"database": "none", "service": "noop"}, None),
        ({"service": "own", "profiler": "light"}, "the profiler is not installed in own"),
        ({"installed": Installed("/p", {"placebench": "1", "psycopg2": "2"}, uwsgi=False)}, "no uwsgi there: /p .*"),
        ({"installed": Installed("/p", {}, uwsgi=True)}, r"no placebench: /p -m pip install placebench\[bench\]"),
        ({"installed": Installed("/p", {}, uwsgi=True), "server": "gunicorn"}, "no gunicorn: /p -m pip .*"),
        ({"installed": Installed("/p", {"placebench": "1"}, uwsgi=True)}, "no driver in it: /p .* psycopg2-binary"),
        ({"service": "tuned+driver:psycopg3"}, "no driver in it: /usr/bin/python -m pip install psycopg"),
        (
            {"version": "15.0.0"},
            "no version of tuned is on the package index: name a python, or a table with app and rev",
        ),
        ({"version": "15.0.0", "service": "noop", "database": "none"}, None),
        ({"sqlalchemy": "2.0.58"}, "placebench needs SQLAlchemy 2.1 or later"),
        ({"driver": "2.9.10", "database": "sqlite"}, "SQLite's driver is Python's own: name a python"),
        ({"database": "mariadb", "driver": "2.9.10"}, "driver is PostgreSQL's: name a python instead"),
        ({"database": "mariadb", "service": "cached"}, "cached runs on PostgreSQL alone"),
        ({"latency_ms": 20, "database": "mariadb", "service": "cached"}, "cached runs on PostgreSQL alone"),
        ({"latency_ms": 20, "database": "sqlite"}, "latency_ms is that of .* database sqlite has none"),
        ({"service": "jit"}, "settings of PostgreSQL: placebench compare has them"),
    ],
)
def test_what_cannot_be_run_says_why(values: dict[str, Any], expected: str | None) -> None:
    """Servers, databases and packages that do not go together."""
    found = reason(**values)

    assert found == expected if expected is None else re.fullmatch(expected, found or "")


def test_mariadb_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program, or without its driver, the reason says how to get it."""
    monkeypatch.setattr(mariadb, "_PATH", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    without = reason(database="mariadb")
    monkeypatch.setattr(mariadb, "_PROGRAMS", ())
    without_driver = reason(database="mariadb")

    assert (without or "").startswith("no mariadbd on this machine: apt-get install")
    assert without_driver == "no driver for MariaDB in it: /usr/bin/python -m pip install PyMySQL"


def write_python(path: Path, packages: dict[str, str]) -> None:
    """Write a program that has these packages, as a Python says when it is inspected, and its version first."""
    path.write_text(
        f"#!/bin/sh\ncase $2 in *json*) echo '{json.dumps(packages)}' ;; *) echo {packages['python']} $0 ;; esac\n"
    )
    path.chmod(0o755)


def test_versions_are_put_before_what_is_installed(tmp_path: Path) -> None:
    """Releases of Placement and of drivers are pinned as packages; Python and SQLAlchemy stay as they are installed."""
    write_python(tmp_path / "python", {"python": "3.12.1", "sqlalchemy": "2.1.9"})
    axes = {"service": ["placement"], "version": ["installed", "15.0.0"], "driver": ["2.9.10"], "python": ["python"]}
    matrix = Matrix("m", "?", axes, {}, [Job(1, 1)], folder=tmp_path)

    (_, installed), (_, older) = combine(matrix, placement_python=tmp_path / "python")

    assert installed.variant is not None
    assert installed.variant.origin == Origin(packages=("psycopg2-binary==2.9.10",))
    assert {"version": "openstack-placement==15.0.0", "driver": "psycopg2-binary==2.9.10"} == older.pinned
    assert {
        "python": "3.12.1",
        "service": "openstack-placement 15.0.0",
        "sqlalchemy": "2.1.9",
        "driver": "psycopg2-binary 2.9.10",
    } == older.versions


def test_a_release_comes_with_the_packages_of_its_time(tmp_path: Path) -> None:
    """Those of its file in the plan's folder, but for what an axis names; the installed one stays as it is."""
    write_python(tmp_path / "python", {"python": "3.12.1", "openstack-placement": "16.0.0"})
    (tmp_path / "of-15.txt").write_text("# then\noslo-policy==4.5.0\nsqlalchemy==2.0.49\nopenstack-placement==15.0.0\n")
    (tmp_path / "mine.toml").write_text(
        "columns = 'version'\n[axes]\nservice = ['placement']\nversion = ['installed', '15.0.0', '14.0.0']\n"
        "[constraints]\n'15.0.0' = 'of-15.txt'\n'14.0.0' = 'absent.txt'\n[[jobs]]\nrequests = 1\ntrees = 1"
    )
    matrix = matrix_named(str(tmp_path / "mine.toml"))

    with pytest.raises(PlacebenchError, match=r"absent.txt, the constraints of version 14.0.0, cannot be read"):
        combine(matrix, placement_python=tmp_path / "python")
    (tmp_path / "absent.txt").write_text("")
    made = [each for _, each in combine(matrix, placement_python=tmp_path / "python")]

    assert "version" == matrix.columns
    assert [
        None,
        Origin(packages=("openstack-placement==15.0.0", "oslo-policy==4.5.0", "sqlalchemy==2.0.49")),
        Origin(packages=("openstack-placement==14.0.0",)),
    ] == [each.variant and each.variant.origin for each in made]
    assert [each.versions["sqlalchemy"] for each in made] == [None, "2.0.49", None]


def test_a_driver_is_that_of_the_variant() -> None:
    """psycopg 3 for the variant that speaks it; SQLite's is known by SQLite's version."""
    axes = {"service": ["tuned+driver:psycopg3"], "driver": ["3.2.1"]}
    ((_, pinned),) = combine(Matrix("m", "?", axes, {}, [Job(1, 1)]))
    lite = Installed("/p", {"python": "3.11.7", "sqlite": "3.40.1"}, uwsgi=True)

    assert pinned.pinned == {"driver": "psycopg[binary]==3.2.1"}
    point = {**AXES, "database": "sqlite"}
    assert "sqlite 3.40.1" == Combination(point, read_variant("tuned"), lite).versions["driver"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("axis = 1", "unknown key 'axis', expected one of title"),
        (
            "[axes]\nserver = ['apache']",
            r"axes.server\[0\]: expected one of granian, gunicorn, mod_wsgi, none, .*, wsgiref, saw 'apache'",
        ),
        ("[axes]\nuser = [1]", "axes: unknown key 'user', did you mean 'users'. expected one of service"),
        ("[axes]\nusers = [0]", r"axes.users\[0\]: expected a whole number >= 1, saw 0"),
        ("[axes]\nservice = 'tuned'", "axes.service: expected an array, saw 'tuned'"),
        ("[axes]\nservice = ['tuned']", "jobs is missing"),
        ("[[jobs]]\nrequests = 2", r"jobs\[0\]: trees is missing"),
        ("repeats = 'five'\n[[jobs]]\nrequests = 2\ntrees = 2", "repeats: expected a whole number, saw 'five'"),
        (
            "[variants.v1]\napp = 'shop:app'\nmigrate = 'python seed.py'\n[[jobs]]\nrequests = 2\ntrees = 2",
            r"variants\.v1\.migrate: a matrix .* migrates no database; leave the key out, or use placebench compare",
        ),
        ("[axes", "cannot be read: Expected ']'"),
        (f"a = {'[' * 5000}", "cannot be read: nested deeper"),
        ("[[jobs]]\nrequests = 10_000_000_000_000\ntrees = 2", r"jobs\[0\].requests: expected a whole number <= 10"),
        ("request = '/é'\n[[jobs]]\nrequests = 1\ntrees = 2", "request: expected a string matching .*, saw '/é'"),
    ],
)
def test_a_mistake_is_named(written: str, message: str, tmp_path: Path) -> None:
    """The file, the key, and what was expected."""
    path = tmp_path / "mine.toml"
    path.write_text(written)

    with pytest.raises(PlacebenchError, match=rf"^{path}.*{message}"):
        matrix_named(str(path))


def test_a_matrix_or_service_that_is_not_there(tmp_path: Path) -> None:
    """Those that come along are named; an unknown service is refused as everywhere."""
    with pytest.raises(
        PlacebenchError, match=r"no matrix 'stacks': expected latency, mariadb, profiler, pythons, sqlite, stack or"
    ):
        matrix_named("stacks")
    with pytest.raises(VariantError, match="no variant 'fast'"):
        combine(Matrix("m", "?", {"service": ["fast"]}, {}, [Job(1, 1)]))
    with pytest.raises(PlacebenchError, match=r"sqlalchemy==the newest: expected one version"):
        combine(Matrix("m", "?", {"service": ["tuned"], "sqlalchemy": ["the newest"]}, {}, [Job(1, 1)]))
    with pytest.raises(PlacebenchError, match=r"no Python at .*/nowhere"):
        combine(Matrix("m", "?", {"python": ["nowhere"]}, {}, [Job(1, 1)], folder=tmp_path))
