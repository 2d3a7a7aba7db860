"""What all commands that ask a survey refuse, before anything is started."""

from pathlib import Path

import pytest

from placebench.cli import main


@pytest.mark.processes
@pytest.mark.parametrize("command", ["workers", "network", "breakdown"])
def test_no_tree_is_nothing_to_ask_for(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file may be about the schema alone, for `seed`; one line, exit code 2."""
    empty = tmp_path / "empty.toml"
    empty.write_text('trees = 0\nrequest = "/traits"\n[[providers]]\nname = "cn"\n')
    assert 2 == main(["lab", "study", command, "--topology", str(empty)])

    assert capsys.readouterr().err.endswith(" points on 0 trees: at least one of each is needed\n")


@pytest.mark.usefixtures("without_placement")
def test_a_headline_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """A service that is not there is named with what to do, and an empty name is refused."""
    assert 2 == main(["lab", "study", "published", "--variants", "placement"])
    assert 2 == main(["lab", "study", "published", "--variants", ""])

    missing, empty = capsys.readouterr().err.splitlines()
    assert missing.startswith(
        "placebench lab study published: nothing of this can be measured: the variant placement needs the Python"
    )
    assert "argument --variants: expected different names with commas between, saw ''" in empty
