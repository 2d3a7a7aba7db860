"""A disk of 100 KiB, in a mount namespace of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

_IN_A_NAMESPACE = ("unshare", "--mount", "--user", "--map-root-user")
_PROFILE = 'mount -t tmpfs -o size=100k none disk && exec "$0" -m placebench profile run -o "$1" program.py'


def test_the_full_folder_is_named(tmp_path: Path) -> None:
    """The program ran; one line says which folder is full, and its exit code is 2."""
    if subprocess.run([*_IN_A_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs in a user namespace")
    (tmp_path / "disk").mkdir()
    (tmp_path / "program.py").write_text("print('ran')\n")
    out = tmp_path / "disk" / "report"

    command = [*_IN_A_NAMESPACE, "sh", "-c", _PROFILE, sys.executable, str(out)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    expected = f"No space left on device: '{out}': free some space, or write elsewhere; what was written whole"
    assert ("ran\n", 2) == (done.stdout, done.returncode)
    assert expected in done.stderr
