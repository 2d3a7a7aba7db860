"""Another user of the machine: cannot take over the folders that servers work in, and reads nothing in them."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from placebench.errors import DatabaseError, PlacebenchError
from placebench.runtime.cache_server import find_cache_server, start_cache_server
from placebench.runtime.mariadb import find_mariadbd, temporary_mariadb
from placebench.runtime.postgres.binaries import find_binaries
from placebench.runtime.postgres.persistent_server import PersistentServer
from placebench.runtime.postgres.private_server import launch_private_server
from placebench.runtime.private_files import check_owned, write_private
from placebench.runtime.supervisor import ChildSpec, Supervisor, new_scratch_path, start_child

OTHER = 1234
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
ATTACK = """
import json, os, select, sys
from contextlib import suppress
folder, target, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.setgroups([]); os.setgid(uid); os.setuid(uid); os.umask(0)
won, read, rounds = [], [], 0
print("ready", flush=True)
while not select.select([0], [], [], 0)[0]:
    rounds += 1
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for word in open(f"/proc/{process}/cmdline", "rb").read().split(b"\\0"):
                name = os.fsdecode(word)
                if name.startswith(folder + "/"):
                    place = name[len(folder) + 1 :].split("/")[0]
                    os.mkdir(f"{folder}/{place}", 0o777)
                    won.append(place)
                    for file in ("password", "postgresql.conf", "init.sql", "cache.conf"):
                        os.symlink(target, f"{folder}/{place}/{file}")
    for place in os.listdir(folder):
        if place not in won:
            with suppress(OSError):
                read += os.listdir(f"{folder}/{place}")
            for file in ("password", "postgresql.conf", "init.sql", "cache.conf", "server.log", "data"):
                with suppress(OSError):
                    read.append(str(os.open(f"{folder}/{place}/{file}", os.O_RDONLY)))
print(json.dumps({"won": won, "read": read, "rounds": rounds}))
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that all users share, as /tmp is."""
    folder = Path(mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


@contextmanager
def attacked(folder: Path, target: Path) -> Iterator[dict[str, object]]:
    """Another user tries to be faster for the `with` block; its result is what it got."""
    got: dict[str, object] = {}
    command = [sys.executable, "-c", ATTACK, f"{folder}", f"{target}", f"{OTHER}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield got
        got.update(json.loads(process.communicate("enough\n")[0]))


@pytest.fixture
def umask() -> Iterator[None]:
    """Files are readable by all users unless somebody sees to it."""
    before = os.umask(0)
    yield
    os.umask(before)


def readable(folder: Path) -> list[str]:
    """The files and folders below *folder*, and itself, that a user outside of its group can read or change."""
    every = (folder, *folder.rglob("*"))
    return [str(path) for path in every if not path.is_symlink() and path.lstat().st_mode & 0o006]


@as_root
def test_no_folder_can_be_taken_over_before_it_is_made(shared: Path, tmp_path: Path) -> None:
    """In 15 starts a user who watches all command lines makes none of the folders, and reads none."""
    with attacked(shared, tmp_path / "target") as got:
        owners = []
        for _ in range(15):
            folder = new_scratch_path("placebench-")
            with start_child(ChildSpec("sleep", ["sleep", "60", str(folder)], cwd=folder, remove=folder)):
                owners.append((folder.lstat().st_uid, stat.S_IMODE(folder.lstat().st_mode)))

    assert owners == [(os.geteuid(), 0o700)] * 15
    assert (got["won"], got["read"]) == ([], [])
    assert isinstance(got["rounds"], int)
    assert got["rounds"] > 0


@as_root
def test_no_server_of_roots_writes_where_another_user_wants(shared: Path, tmp_path: Path) -> None:
    """PostgreSQL starts while another user tries to put links into its folder: root's file is as it was."""
    target = tmp_path / "file of root"
    target.write_text("mine")
    with attacked(shared, target) as got:
        launch_private_server(find_binaries(), {}).supervisor.close()

    assert (got["won"], got["read"]) == ([], [])
    assert (target.read_text(), target.stat().st_uid) == ("mine", 0)


@pytest.mark.usefixtures("umask")
def test_no_file_of_a_server_can_be_read_by_others(shared: Path) -> None:
    """PostgreSQL with its data and configuration: also with umask 0, also if the folder itself were open."""
    server = launch_private_server(find_binaries(), {})
    with server.supervisor:
        places = [path for path in shared.iterdir() if (path / "data").exists()]

        assert len(places) == 1
        assert readable(places[0]) == []


@pytest.mark.usefixtures("umask")
def test_no_file_of_a_cache_server_can_be_read_by_others(shared: Path) -> None:
    """Its configuration, with the password, and its log."""
    try:
        find_cache_server()
    except PlacebenchError as error:
        pytest.skip(str(error))
    server = start_cache_server()
    try:
        (folder,) = shared.iterdir()

        assert {"cache.conf", "cache.log"} <= {path.name for path in folder.iterdir()}
        assert readable(folder) == []
    finally:
        server.stop()


@pytest.mark.usefixtures("umask")
def test_no_file_of_mariadb_can_be_read_by_others(shared: Path) -> None:
    """Its first script, with the password, its logs and the folder of its data."""
    try:
        find_mariadbd()
    except DatabaseError as error:
        pytest.skip(str(error))
    with temporary_mariadb():
        (folder,) = shared.iterdir()

        assert [path.name for path in folder.iterdir() if path.lstat().st_mode & 0o006] == []


@pytest.mark.usefixtures("umask")
def test_the_log_of_a_child_is_for_this_user_alone(tmp_path: Path) -> None:
    """With umask 0 too: tracebacks of an application have its data in them."""
    with start_child(ChildSpec("sh", ["sh", "-c", "echo secret"], log=tmp_path / "log")) as child:
        child.wait(60)

    assert ((tmp_path / "log").read_text(), stat.S_IMODE((tmp_path / "log").stat().st_mode)) == ("secret\n", 0o600)


def test_a_folder_that_exists_is_refused_and_stays(tmp_path: Path) -> None:
    """It may belong to somebody who waits for files; neither is it used, nor removed."""
    (tmp_path / "thesis.txt").touch()

    with pytest.raises(PlacebenchError, match="File exists"):
        Supervisor(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A link to an empty folder, and one that leads nowhere, which mkdir would otherwise follow."""
    (tmp_path / "empty").mkdir()
    for name, there in (("link", "empty"), ("dangling", "nothing")):
        (tmp_path / name).symlink_to(tmp_path / there)

        with pytest.raises(PlacebenchError, match="File exists"):
            Supervisor(tmp_path / name)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "empty", "link"]


@pytest.mark.parametrize(("mode", "is_refused"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_folders_for_temporary_files(shared: Path, *, mode: int, is_refused: bool) -> None:
    """One in which every user can replace our folder by another is refused, in one line that says what to do."""
    shared.chmod(mode)
    if is_refused:
        with pytest.raises(PlacebenchError, match=rf"mode is 0777\).*; chmod \+t {shared}, or set TMPDIR"):
            new_scratch_path("placebench-")
    else:
        assert new_scratch_path("placebench-").parent == shared


def test_a_folder_for_temporary_files_that_is_a_link(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of what is made there has no link: nobody can turn it later."""
    (shared / "real").mkdir()
    (shared / "link").symlink_to("real")
    monkeypatch.setattr("tempfile.tempdir", str(shared / "link"))

    assert new_scratch_path("x-").parent == shared / "real"


@pytest.mark.parametrize("planted", ["file", "link", "dangling", "fifo", "hard link"])
def test_a_secret_is_written_into_a_new_file(tmp_path: Path, planted: str) -> None:
    """Whatever lies there already is replaced, and what it leads to is neither written nor given away."""
    path, target = tmp_path / "password", tmp_path / "target"
    target.write_text("mine")
    if planted == "file":
        path.write_text("a longer text than the secret")
    elif planted == "fifo":
        os.mkfifo(path)
    elif planted == "hard link":
        path.hardlink_to(target)
    else:
        path.symlink_to(target if planted == "link" else tmp_path / "nothing")

    write_private(path, "sesame")

    assert (path.read_text(), stat.S_IMODE(path.lstat().st_mode), path.is_symlink()) == ("sesame", 0o600, False)
    assert (target.read_text(), (tmp_path / "nothing").exists()) == ("mine", False)


@as_root
def test_a_secret_is_given_to_the_user_of_the_server(tmp_path: Path) -> None:
    """The file belongs to it, or its group can read it and root alone can change it."""
    write_private(tmp_path / "given", "sesame", owner=(OTHER, OTHER))
    write_private(tmp_path / "shown", "sesame", readers=OTHER)
    seen = [path.stat() for path in sorted(tmp_path.iterdir())]

    assert [(each.st_uid, each.st_gid, stat.S_IMODE(each.st_mode)) for each in seen] == [
        (OTHER, OTHER, 0o600),
        (0, OTHER, 0o640),
    ]


@as_root
def test_an_existing_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """The folder, and a link of that user to one of ours; a link of ours is fine."""
    foreign, ours, link, own_link = (tmp_path / name for name in ("foreign", "ours", "link", "own link"))
    for folder in (foreign, ours):
        folder.mkdir(mode=0o700)
    for each in (link, own_link):
        each.symlink_to(ours)
    os.chown(foreign, OTHER, OTHER)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)

    for folder in (foreign, link):
        with pytest.raises(PlacebenchError, match=rf"{folder} belongs to the user {OTHER}: work as that user"):
            check_owned(folder)
    check_owned(own_link)


def test_an_existing_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    """The line says which mode was expected."""
    tmp_path.chmod(0o770)

    with pytest.raises(PlacebenchError, match=r"\(its mode is 0770\): expected 0700"):
        check_owned(tmp_path)


@as_root
def test_a_server_that_another_user_has_prepared(shared: Path) -> None:
    """Neither its password nor its data is used: `start`, `url`, `stop` and `remove` say whose it is."""
    folder = shared / "standing"
    folder.mkdir()
    (folder / "server.json").write_text('{"port": 5432, "password": "trap", "data_version": 18}')
    os.chown(folder, OTHER, OTHER)
    server = PersistentServer(folder)
    actions = (server.start, server.url, server.stop, server.remove)

    for action in actions:
        with pytest.raises(DatabaseError, match=rf"{folder} belongs to the user {OTHER}"):
            action()
