"""What a command says while it works."""

import pytest

from placebench.commands.console import steps


def test_a_step_more_than_planned_is_counted_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A replicate that is made again makes three steps of two; nothing is step 3 of 2."""
    with steps("compare", 2) as announce:
        for step in ("seed", "replicate 1", "replicate 1"):
            announce(step)

    assert capsys.readouterr().err.splitlines() == ["[1/2] seed", "[2/2] replicate 1", "[3/3] replicate 1"]
