"""Scratch databases on a server that many share: whose they are, whether their run lives, and what may go."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool
from statements import run

from placebench.cli import main
from placebench.compare.keep.records import RunHead
from placebench.compare.keep.run_folder import RunFolder
from placebench.errors import DatabaseError
from placebench.runtime.postgres import Server, open_connection, open_server
from placebench.runtime.postgres.scratch import UNMARKED, Mark, RunLock, find_leftovers, run_of_mark, scratch_databases

Eventually = Callable[[Callable[[], bool]], bool]
MAKE = """
import sys
from placebench.runtime.postgres import open_server

server = open_server(sys.argv[1])
print(server.run, server.create_database("placebench_shop"), flush=True)
sys.stdin.read()
"""


def roles(server: Server, of_run: str) -> list[object]:
    """The role of a run's databases, while it is there."""
    return run(server.url, f"SELECT rolname FROM pg_roles WHERE rolname = 'placebench_{of_run}'")


def states(server: Server, of_run: str) -> list[str]:
    """The states of a run's databases, as a stranger sees them."""
    with open_connection(server.url) as connection:
        return [each.state for each in scratch_databases(connection) if each.run == of_run]


def name_of(url: str) -> str:
    """The database that a URL names."""
    return str(make_url(url).database)


def clean(server: Server, *words: str) -> int:
    """`placebench db clean --server URL WORDS`."""
    return main(["db", "clean", "--server", server.url, *words])


@pytest.fixture
def named(server: Server) -> Iterator[Server]:
    """The server of the session as if the user had named it."""
    with open_server(server.url) as opened:
        yield opened


@pytest.fixture
def killed(server: Server, eventually: Eventually) -> tuple[str, str]:
    """The run and the database of a process that was killed with -9; the server has noticed."""
    command = [sys.executable, "-c", MAKE, server.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        of_run, url = process.stdout.readline().split()
        assert states(server, of_run) == ["running"]
        process.send_signal(signal.SIGKILL)
    assert eventually(lambda: states(server, of_run) == ["left"])
    return of_run, name_of(url)


@pytest.fixture
def shop(server: Server) -> Iterator[Callable[[], list[object]]]:
    """A stranger's databases with names that a run in a folder `shop` could have wished for, and their rows."""
    names = ["placebench_shop", "placebench_shop_1", "placebench_shop_statistics"]
    urls = [make_url(server.url).set(database=name).render_as_string(hide_password=False) for name in names]
    for name, url in zip(names, urls, strict=True):
        run(server.url, f"CREATE DATABASE {name}")
        run(url, "CREATE TABLE orders AS SELECT 7 AS number")
    yield lambda: [number for url in urls for number in run(url, "SELECT number FROM orders")]
    for name in names:
        run(server.url, f"DROP DATABASE {name}")


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["compare", "noop", "tuned", "--replicates", "0", "--trees", "1"],
        ["lab", "study", "network", "--variants", "tuned", "--latency-ms", "0", "-n", "1", "--trees", "1"],
        [
            "lab",
            "study",
            "workers",
            "--mixes",
            "1x1",
            "--workloads",
            "query",
            "--requests",
            "2",
            "-n",
            "1",
            "--trees",
            "1",
        ],
        ["lab", "study", "matrix", "FILE", "-n", "1"],
    ],
    ids=["compare", "network", "workers", "matrix"],
)
def test_a_strangers_database_survives(
    server: Server, shop: Callable[[], list[object]], words: list[str], tmp_path: Path
) -> None:
    """Whatever the run's folder is called, no database of that name is touched, and those of the run are gone."""
    matrix = tmp_path / "one.toml"
    matrix.write_text('title = "One"\n[axes]\nservice = ["tuned"]\n[control]\n[[jobs]]\nrequests = 1\ntrees = 1\n')
    words = [str(matrix) if word == "FILE" else word for word in words]
    before = set(run(server.url, "SELECT datname FROM pg_database"))

    assert main([*words, "--server", server.url, "--out", str(tmp_path / "shop")]) == 0
    assert shop() == [7] * 3
    assert set(run(server.url, "SELECT datname FROM pg_database")) == before


def test_two_runs_with_the_same_labels_do_not_meet(server: Server) -> None:
    """Each has its own databases, and the end of one leaves those of the other."""
    with open_server(server.url) as one:
        url = one.create_database("placebench_shop")
        with open_server(server.url) as two:
            two.create_database("placebench_shop")
            both = states(server, one.run) + states(server, two.run)

        assert (both, states(server, two.run), run(url, "SELECT 1")) == (["running"] * 2, [], [1])
    assert states(server, one.run) == []


def test_a_copy_has_a_mark_of_its_own(named: Server) -> None:
    """Comments are not copied: the mark names the copy, by which it can be dropped."""
    named.create_database("placebench_shop")
    copy = name_of(named.create_database("placebench_copy", template="placebench_shop"))
    with open_connection(named.url) as connection:
        marks = {each.name: each.mark for each in scratch_databases(connection)}

    mark = marks[copy]
    assert mark is not None
    assert (mark.run, mark.database) == (named.run, copy)


def test_a_finished_database_takes_any_number_of_connections(named: Server) -> None:
    """The number that stands for the mark until that is there is no limit afterwards."""
    url = named.create_database("placebench_shop")

    assert run(url, "SELECT datconnlimit FROM pg_database WHERE datname = current_database()") == [-1]


def test_databases_belong_to_a_role_without_rights_that_goes_with_them(server: Server) -> None:
    """It can log in, owns what the run made and a copy of that, and may nothing else; its password is in no log."""
    with open_server(server.url) as own:
        url = own.create_database("placebench_shop")
        run(url, "CREATE TABLE orders AS SELECT 7 AS number")
        copy = own.create_database("placebench_copy", template="placebench_shop")
        rights = "rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls"
        role = make_url(url).username

        assert roles(server, own.run) == [role]
        assert run(url, f"SELECT {rights} FROM pg_roles WHERE rolname = current_user") == [False]
        assert run(copy, "INSERT INTO orders VALUES (8)", "SELECT sum(number) FROM orders") == [15]
        assert make_url(own.admin_url("placebench_copy")).username == make_url(server.url).username
        (stored,) = run(server.url, f"SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'")
        assert str(stored).startswith("SCRAM-SHA-256$")
    assert roles(server, own.run) == []


def test_a_role_of_somebody_else_stays(server: Server) -> None:
    """A name like ours is not enough: without the mark of a run that is gone, a role is never dropped."""
    run(server.url, "CREATE ROLE placebench_0123456789abcdef", "COMMENT ON ROLE placebench_0123456789abcdef IS 'mine'")
    try:
        assert clean(server, "--yes") == 0
        assert roles(server, "0123456789abcdef") == ["placebench_0123456789abcdef"]
    finally:
        run(server.url, "DROP ROLE placebench_0123456789abcdef")


def test_a_server_that_refuses_the_new_role_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says which role has to log in, and what else helps; neither it nor a database is left."""
    monkeypatch.setattr("placebench.runtime.postgres.scratch._scram_verifier", lambda *_: "x")
    before = run(server.url, "SELECT datname FROM pg_database ORDER BY 1")
    with open_server(server.url) as own:
        expected = rf"belong to the role placebench_{own.run}, which cannot log in: .*let pg_hba.conf accept it"
        with pytest.raises(DatabaseError, match=expected):
            own.create_database("placebench_shop")

    assert roles(server, own.run) == []
    assert run(server.url, "SELECT datname FROM pg_database ORDER BY 1") == before


def test_marks_of_somebody_else() -> None:
    """No comment, another comment, one of a later version, and our own on a database that was renamed are none."""
    mark = Mark.of("0123456789abcdef", "placebench_shop_0123456789abcdef_0")
    later = mark.comment().replace('"pid"', '"process"')
    comments = [None, "", "the accounts of 2019", later, mark.comment()[:-1]]

    assert [Mark.read(comment) for comment in comments] == [None] * 5
    assert Mark.read(mark.comment()) == mark
    assert run_of_mark(mark.database, -1, mark) == "0123456789abcdef"
    assert run_of_mark("accounts", -1, mark) is None
    assert run_of_mark(mark.database, -1, None) is None


def test_what_a_killed_run_left_is_listed_and_dropped_when_told(
    server: Server, named: Server, killed: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`db clean` shows it as left, `--yes` drops it; a run that lives, and one that somebody looks at, stay."""
    of_run, database = killed
    alive = named.create_database("placebench_shop")
    codes = [clean(server)]
    listed = capsys.readouterr().out.splitlines()
    looking = create_engine(make_url(server.url).set(database=database), poolclass=NullPool).connect()
    codes.append(clean(server, "--yes"))
    looked_at = capsys.readouterr().out.splitlines()
    looking.close()
    codes.append(clean(server, "--yes", "--json"))
    document = json.loads(capsys.readouterr().out)

    assert (roles(server, of_run), len(roles(server, named.run))) == ([], 1)
    assert codes == [0, 0, 0]
    assert [line.split()[:2] for line in listed if database in line] == [["left", database]]
    assert [line.split()[:3] for line in looked_at if database in line] == [["in", "use", database]]
    dropped = {each["name"]: each["dropped"] for each in document["databases"]}
    assert (dropped[database], dropped[name_of(alive)]) == (True, False)
    assert (states(server, of_run), run(alive, "SELECT 1")) == ([], [1])


def test_a_creator_killed_before_its_mark(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """CREATE DATABASE and COMMENT are two transactions: what was made between them is known by its limit and name."""
    unfinished = "placebench_shop_00112233445566ff_3"
    run(server.url, f"CREATE DATABASE {unfinished} CONNECTION LIMIT {UNMARKED}")

    assert states(server, "00112233445566ff") == ["left"]
    assert clean(server, "--yes") == 0
    assert states(server, "00112233445566ff") == []
    assert f"dropped  {unfinished}  its creator was killed" in capsys.readouterr().out


def test_a_database_that_cannot_be_dropped_is_told(
    server: Server, killed: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with exit code 2 and prints the server's reason; a second attempt can drop the database."""
    _, database = killed
    run(server.url, f"ALTER DATABASE {database} IS_TEMPLATE true")
    try:
        assert clean(server, "--yes") == 2
        assert re.search("1 could not be dropped: .*cannot drop a template database", capsys.readouterr().err)
    finally:
        run(server.url, f"ALTER DATABASE {database} IS_TEMPLATE false")
    assert clean(server, "--yes") == 0


def test_which_server_is_to_be_cleaned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --server and $PLACEBENCH_DATABASE_URL that is one line and exit code 2."""
    monkeypatch.delenv("PLACEBENCH_DATABASE_URL", raising=False)

    assert main(["db", "clean"]) == 2
    assert capsys.readouterr().err.startswith("placebench db clean: which server? give --server postgresql://")


def test_a_resumed_run_drops_what_its_killed_sitting_left(
    server: Server, named: Server, killed: tuple[str, str], tmp_path: Path
) -> None:
    """run.json holds the marks of earlier sittings; one that still holds its lock stays, and so does its mark."""
    of_run, _ = killed
    with open_server(server.url) as living:
        living.create_database("placebench_shop")
        marks = [of_run, living.run]
        head = RunHead("shop", "", "running", "/", "", 1, 1, ["naive"], {}, {}, {}, {}, scratch_marks=marks)
        run = RunFolder(tmp_path, head)
        run.claim_server(named)

        assert RunHead.load(tmp_path / "run.json").scratch_marks == [living.run, named.run]
        assert (states(server, of_run), states(server, living.run)) == ([], ["running"])


def test_a_lock_whose_connection_is_lost_is_taken_again(
    server: Server, named: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose connection was just cut is not taken for gone, and none of its databases is a leftover."""
    monkeypatch.setattr("placebench.runtime.postgres.scratch._PING_S", 3600.0)
    named.create_database("placebench_shop")
    (ended,) = run(
        server.url,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1",
    )

    assert ended == 1
    assert [each.state for each in find_leftovers(server.url) if each.run == named.run] == ["running"]


def test_the_lock_holds_nothing_back(named: Server) -> None:
    """Its transaction has neither a snapshot nor an id, so that vacuum and the change log go on."""
    named.create_database("placebench_shop")
    asked = "FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND objsubid = 1"

    assert run(named.url, f"SELECT count(*) {asked}") == [1]
    assert run(named.url, f"SELECT count(*) {asked} AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)") == [0]


def test_a_lock_that_cannot_be_had(server: Server) -> None:
    """A server that refuses is the line, at once."""
    with pytest.raises(DatabaseError, match="authentication failed"):
        RunLock(make_url(server.url).set(password="wrong").render_as_string(hide_password=False), "0123456789abcdef")


def test_a_role_without_rights_sees_the_marks(server: Server, named: Server) -> None:
    """Neither the comments nor the locks want a right."""
    named.create_database("placebench_shop")
    run(server.url, "DROP ROLE IF EXISTS placebench_guest", "CREATE ROLE placebench_guest LOGIN PASSWORD 'passing'")
    guest = make_url(server.url).set(username="placebench_guest", password="passing")
    try:
        with open_connection(guest.render_as_string(hide_password=False)) as connection:
            seen = [each.state for each in scratch_databases(connection) if each.run == named.run]
    finally:
        run(server.url, "DROP ROLE placebench_guest")

    assert seen == ["running"]
