"""A disk that is full, in a mount namespace of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_IN_A_NAMESPACE = ("unshare", "--mount", *(("--user", "--map-root-user") if os.geteuid() else ()))
# Unlogged: a full write-ahead log ends the server, and which of the two is full first is chance.
_FILL = "CREATE UNLOGGED TABLE filled AS SELECT repeat(md5(n::text), 10) AS text FROM generate_series(1, 1000000) AS n"
_COMPARE = """
mount -t tmpfs -o size=110m none /mnt && export TMPDIR=/mnt &&
exec "$0" -m placebench compare one two -n 0 --plan plan.toml -o run -q --setup "psql -q -c '$1'"
"""
_PLAN = """
request = "/"

[app]
app = "service:app"

[variants.one]
[variants.two]
"""
_PROFILE = 'mount -t tmpfs -o size=100k none disk && exec "$0" -m placebench profile run -o "$1" program.py'


def _run_in_namespace(folder: Path, script: str, argument: str) -> "subprocess.CompletedProcess[str]":
    (folder / "disk").mkdir()
    if subprocess.run([*_IN_A_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs in a user namespace")
    command = [*_IN_A_NAMESPACE, "sh", "-c", script, sys.executable, argument]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_full_folder_is_named(tmp_path: Path) -> None:
    """The program ran; one line says which folder is full, and its exit code is 2."""
    (tmp_path / "program.py").write_text("print('ran')\n")
    out = tmp_path / "disk" / "report"

    done = _run_in_namespace(tmp_path, _PROFILE, str(out))

    expected = f"No space left on device: '{out}': free some space, or write elsewhere; what was written whole"
    assert ("ran\n", 2) == (done.stdout, done.returncode)
    assert expected in done.stderr


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="root of a user namespace cannot start PostgreSQL as another user")
def test_the_folder_of_a_postgresql_that_is_full_is_named(tmp_path: Path) -> None:
    """PostgreSQL names a file below its own folder; the line says where that is, and which variable moves it."""
    (tmp_path / "service.py").write_text("app = None\n")
    (tmp_path / "plan.toml").write_text(_PLAN)

    done = _run_in_namespace(tmp_path, _COMPARE, _FILL)

    assert 2 == done.returncode, done.stderr
    assert "could not extend file" in done.stderr
    assert "placebench's own PostgreSQL is in /mnt: TMPDIR names a folder" in done.stderr
