"""What a command says while it works."""

import pytest

from placebench.commands.output import say, steps


def test_a_note_between_two_steps_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What fails and is made again is told, and the steps keep their numbers."""
    with steps("compare", 2) as announce:
        announce("seed")
        announce("replicate 1")
        say("the replicate is discarded")

    assert capsys.readouterr().err.splitlines() == ["[1/2] seed", "[2/2] replicate 1", "the replicate is discarded"]
