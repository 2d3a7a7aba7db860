"""What goes through the connection to another machine."""

from pathlib import Path

import pytest

from placebench.errors import HostError
from placebench.remote.stream import write_file


def test_a_host_writes_only_into_the_run(tmp_path: Path) -> None:
    """What is sent for another place is refused."""
    for name in ("../elsewhere", "/tmp/elsewhere"):
        with pytest.raises(HostError, match="not inside"):
            write_file(tmp_path / "run", {"file": name, "mode": 0o644}, b"", links=False)
