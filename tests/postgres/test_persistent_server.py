"""`placebench db`: a server that outlives the command, with data that stays."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from statements import run

from placebench.cli import main
from placebench.errors import DatabaseError
from placebench.runtime.postgres import normalise_url
from placebench.runtime.postgres.persistent_server import PersistentServer, state_folder

Eventually = Callable[[Callable[[], bool]], bool]


def command(*words: str) -> int:
    """`placebench db WORDS`."""
    return main(["db", *words])


@pytest.fixture
def folder() -> Iterator[Path]:
    """The path of a folder to be made, where every user can enter; a server in it is stopped after the test."""
    parent = Path(tempfile.mkdtemp(dir="/tmp"))
    parent.chmod(0o755)
    yield parent / "standing"
    PersistentServer(parent / "standing").stop()
    shutil.rmtree(parent)


@pytest.fixture
def standing(folder: Path) -> PersistentServer:
    """A server that was just started for the first time."""
    server = PersistentServer(folder)
    server.start()
    return server


def test_the_life_of_a_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """start prints the URL, again start and url the same one; stop --remove leaves nothing, and then url fails."""
    codes = [command("start", "--dir", str(folder)), command("start", "--dir", str(folder))]
    codes.append(command("url", "--dir", str(folder)))
    out, err = capsys.readouterr()
    url = out.splitlines()[0]

    assert (codes, out.splitlines()) == ([0, 0, 0], [url, url, url])
    assert err.splitlines() == [f"PostgreSQL started in {folder}", f"PostgreSQL is running already in {folder}"]
    assert run(normalise_url(url), "SHOW data_directory") == [str(folder / "data")]
    assert command("stop", "--remove", "--dir", str(folder)) == 0
    assert not folder.exists()
    assert command("url", "--dir", str(folder)) == 2
    assert f"no server runs in {folder}: start it with placebench db start" in capsys.readouterr().err


def test_every_action_speaks_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone on stdout, with the same keys whether there was anything to do or not."""
    results = []
    for words in (["start"], ["start"], ["url"], ["stop"], ["stop", "--remove"], ["stop", "--remove"]):
        command(*words, "--json", "--dir", str(folder))
        results.append(json.loads(capsys.readouterr().out))
    urls = {name: results[0][name] for name in ("url", "sqlalchemy_url")}

    assert results == [
        {"directory": str(folder), **urls, "started": True},
        {"directory": str(folder), **urls, "started": False},
        {"directory": str(folder), **urls},
        {"directory": str(folder), "stopped": True, "removed": False},
        {"directory": str(folder), "stopped": False, "removed": True},
        {"directory": str(folder), "stopped": False, "removed": False},
    ]


def test_each_tool_takes_its_url(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plain one psql (libpq), with --sqlalchemy create_engine of this environment."""
    command("start", "--dir", str(folder))
    command("url", "--sqlalchemy", "--dir", str(folder))
    plain, sqlalchemy = capsys.readouterr().out.splitlines()

    with closing(psycopg2.connect(plain)) as connection:
        assert plain.startswith("postgresql://")
        assert connection.info.dbname == "postgres"
    with create_engine(sqlalchemy).connect() as engine:
        assert 1 == engine.exec_driver_sql("SELECT 1").scalar_one()


def test_it_outlives_the_process_that_started_it(folder: Path) -> None:
    """It answers after that process, and everything in that process's session, has ended."""
    script = "import sys; from pathlib import Path\n"
    script += "from placebench.runtime.postgres.persistent_server import PersistentServer\n"
    script += "PersistentServer(Path(sys.argv[1])).start()"
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], start_new_session=True) as process:
        process.wait()

    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert run(PersistentServer(folder).url(), "SELECT 1") == [1]


def test_data_stays_over_a_stop(standing: PersistentServer) -> None:
    """Rows, the password and, while it is free, the port are the same after the next start."""
    url = standing.url()
    run(url, "CREATE TABLE flavour AS SELECT 'vanilla' AS name")
    stopped, started = standing.stop(), standing.start()

    assert (stopped, started, standing.url()) == (True, True, url)
    assert run(url, "SELECT name FROM flavour") == ["vanilla"]


def test_data_survives_kill_9(standing: PersistentServer, eventually: Eventually) -> None:
    """It is written through to the disk; the next start recovers what was committed."""
    url = standing.url()
    run(url, "CREATE TABLE flavour AS SELECT 'vanilla' AS name")
    os.kill(int((standing.folder / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    assert eventually(lambda: not standing.stop())
    assert standing.start()
    assert run(url, "SHOW fsync") + run(url, "SELECT name FROM flavour") == ["on", "vanilla"]


@pytest.mark.long
def test_another_port_when_somebody_took_it(standing: PersistentServer) -> None:
    """The server comes back on a port that is free, and the URL says so."""
    before = make_url(standing.url()).port
    assert before is not None
    standing.stop()
    with socket.create_server(("127.0.0.1", before)):
        standing.start()

    assert make_url(standing.url()).port != before
    assert run(standing.url(), "SELECT 1") == [1]


def test_two_starts_at_once(folder: Path) -> None:
    """One starts it, the other waits and finds it running."""
    with ThreadPoolExecutor(2) as threads:
        started = list(threads.map(lambda _: PersistentServer(folder).start(), range(2)))

    assert sorted(started) == [False, True]


@pytest.mark.long
def test_a_start_that_was_interrupted(standing: PersistentServer) -> None:
    """Data that was never finished is made anew."""
    standing.stop()
    access = json.loads((standing.folder / "server.json").read_text())
    (standing.folder / "server.json").write_text(json.dumps(access | {"data_version": None}))
    (standing.folder / "data" / "PG_VERSION").unlink()

    assert standing.start()
    assert run(standing.url(), "SELECT 1") == [1]


def test_data_of_another_postgresql(folder: Path) -> None:
    """Data that this version cannot read is neither touched nor removed."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "PG_VERSION").write_text("9")
    (folder / "server.json").write_text('{"port": 5432, "password": "sesame", "data_version": 9}')

    with pytest.raises(DatabaseError, match=r"was made by PostgreSQL 9, but \d+ is installed"):
        PersistentServer(folder).start()
    assert (folder / "data" / "PG_VERSION").read_text() == "9"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"port": 0, "password": "sesame"}'])
def test_a_damaged_server_json(folder: Path, content: str) -> None:
    """The line names the file."""
    folder.mkdir()
    (folder / "server.json").write_text(content)

    with pytest.raises(DatabaseError, match=r"server\.json: .* remove "):
        PersistentServer(folder).start()


def test_a_folder_with_other_files(folder: Path) -> None:
    """It is not taken over, and not emptied either."""
    folder.mkdir()
    (folder / "thesis.txt").write_text("irreplaceable")
    server = PersistentServer(folder)

    with pytest.raises(DatabaseError, match="holds other files"):
        server.start()
    assert (server.stop(), server.remove(), (folder / "thesis.txt").read_text()) == (False, False, "irreplaceable")


def test_removal_leaves_what_is_not_ours(folder: Path) -> None:
    """A file that somebody put beside the data stays, and with it the folder."""
    (folder / "data").mkdir(parents=True)
    (folder / "server.json").write_text('{"port": 5432, "password": "sesame", "data_version": 9}')
    (folder / "thesis.txt").write_text("irreplaceable")

    assert PersistentServer(folder).remove()
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's server runs as that user, who can enter")
def test_a_folder_that_the_unprivileged_user_cannot_enter(folder: Path) -> None:
    """Root's server cannot live under /root: one line says who cannot enter what."""
    closed = folder / "closed"
    closed.mkdir(parents=True)
    closed.chmod(0o700)

    with pytest.raises(DatabaseError, match=rf"the user \w+, who runs root's servers, cannot enter {closed}"):
        PersistentServer(closed / "standing").start()


def test_where_the_server_lies_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """In $XDG_STATE_HOME; without it in ~/.local/state, or for root, whose home is closed to others, in /var/lib."""
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    named = state_folder()
    monkeypatch.delenv("XDG_STATE_HOME")
    of_home = {}
    for home in ("/home/ada", "/home/bob"):
        monkeypatch.setenv("HOME", home)
        of_home[home] = state_folder()

    assert str(named) == "/state/placebench/postgres"
    assert len(set(of_home.values())) == 2, "a home, a server"
    if os.geteuid() == 0:
        assert {folder.parent for folder in of_home.values()} == {Path("/var/lib/placebench")}
    else:
        assert str(of_home["/home/ada"]) == "/home/ada/.local/state/placebench/postgres"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a PID namespace")
def test_a_server_in_another_container(standing: PersistentServer) -> None:
    """From another PID namespace its process is not seen: one line says so, and it runs on with its data."""
    run(standing.url(), "CREATE TABLE flavour AS SELECT 'vanilla' AS name")
    away = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "placebench", "db"]

    for words in (["start"], ["url"], ["stop"], ["stop", "--remove"]):
        command = [*away, *words, "--dir", str(standing.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (2, ""), words
        assert f"a server runs in {standing.folder} that is not seen from here" in done.stderr
        assert run(standing.url(), "SELECT name FROM flavour") == ["vanilla"]
