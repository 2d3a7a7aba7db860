"""Whom servers run as, and where that user can go."""

import os
from pathlib import Path

import pytest

from placebench.runtime.postgres.binaries import Account, private_folder, server_account


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
