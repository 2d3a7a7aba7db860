"""What all commands that ask a survey refuse, before anything is started."""

import pytest

from placebench.cli import main


@pytest.mark.parametrize("command", ["matrix", "workers", "link", "gauge", "headline"])
def test_no_tree_is_nothing_to_ask_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    assert 2 == main([command, "--trees", "0"])

    assert f"placebench {command}: --trees 0 leaves nothing to ask for: give 1 or more\n" == capsys.readouterr().err


def test_a_headline_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """A service that is not there is named with what to do, and an empty name is none."""
    assert 2 == main(["headline", "--services", "placement,placement"])
    assert 2 == main(["headline", "--services", ""])

    missing, empty = capsys.readouterr().err.splitlines()
    assert missing.startswith(
        "placebench headline: nothing of this can be measured: needs the Python of an environment"
    )
    assert empty.startswith("placebench headline: no variant ''")
