"""Which files were opened, as the kernel reports it."""

import os
import subprocess
from pathlib import Path

import pytest

from placebench.meters.opened_files import watch_opens


@pytest.mark.processes
def test_a_file_is_opened_under_any_name_by_any_process(tmp_path: Path) -> None:
    """By a link of another name, by a hard link and by another program; asking for its size does not open it."""
    names = ["plain", "soft", "hard", "by_program", "asked", "before"]
    paths = {name: tmp_path / name for name in names}
    for path in paths.values():
        path.write_text("")
    (tmp_path / "link").symlink_to("soft")
    os.link(paths["hard"], tmp_path / "other")
    paths["before"].read_text()

    with watch_opens([str(path) for path in paths.values()]) as opened:
        paths["plain"].read_text()
        (tmp_path / "link").read_text()
        (tmp_path / "other").read_text()
        subprocess.run(["cat", paths["by_program"]], check=True)
        assert paths["asked"].stat().st_size == 0

        assert {str(paths[name]) for name in ("plain", "soft", "hard", "by_program")} == opened()


def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(FileNotFoundError, match="nowhere"), watch_opens([str(tmp_path / "nowhere")]):
        pass
