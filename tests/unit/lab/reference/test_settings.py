"""The settings of the search, from environment variables."""

import pytest

from placebench.errors import ServerError
from placebench.lab.reference.domain.settings import ServiceSettings, read_settings


def test_nothing_set_is_placements_default() -> None:
    """The first candidates of all, tree by tree."""
    assert read_settings({}) == ServiceSettings(randomize=False, maximum=None, strategy="depth-first")


def test_every_setting_has_a_variable() -> None:
    """Random candidates, at most 500, from every tree by turns, beginning where the seed says."""
    environment = {
        "PLACEBENCH_RANDOMIZE_CANDIDATES": "1",
        "PLACEBENCH_MAX_CANDIDATES": "500",
        "PLACEBENCH_CANDIDATES_STRATEGY": "breadth-first",
        "PLACEBENCH_CANDIDATES_SEED": "7",
    }

    expected = ServiceSettings(randomize=True, maximum=500, seed=7, strategy="breadth-first")
    assert read_settings(environment) == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PLACEBENCH_RANDOMIZE_CANDIDATES", "yes", "expected 0 or 1, got 'yes'"),
        ("PLACEBENCH_MAX_CANDIDATES", "0", "expected a number from 1 to 2147483647, or -1 for all, got '0'"),
        ("PLACEBENCH_MAX_CANDIDATES", "9" * 30, "expected a number from 1 to 2147483647"),
        ("PLACEBENCH_CANDIDATES_SEED", "-1", "expected a number from 0 to 4294967295, got '-1'"),
        ("PLACEBENCH_CANDIDATES_SEED", "9" * 5000, "expected a number from 0 to 4294967295"),
        ("PLACEBENCH_CANDIDATES_STRATEGY", "first", "expected depth-first or breadth-first, got 'first'"),
    ],
)
def test_a_value_that_means_nothing_is_one_line(name: str, value: str, message: str) -> None:
    """With the variable, what was expected and what was seen."""
    with pytest.raises(ServerError, match=f"{name}: {message}"):
        read_settings({name: value})
