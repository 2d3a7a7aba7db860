"""What lies in the room `loaders`, found by name."""

from pathlib import Path

import pytest

from placebench.errors import SeedError, TopologyError
from placebench.lab.inventory.seeding import find_loader, find_topology


def test_a_topology_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    """A file of one's own is as good as one of ours."""
    path = tmp_path / "mine.toml"
    path.write_text('request = "/x"\n[[providers]]\nname = "cn"')

    assert find_topology(str(path)).name == "mine"
    assert find_topology("flat-perfload", trees=3, seed=7).trees == 3


def test_an_unknown_topology_is_answered_with_the_list() -> None:
    """One line that says what there is."""
    with pytest.raises(
        TopologyError, match=r"no topology 'x': there are .*, deep, .*, nested-perfload, .*, wide, or the path"
    ):
        find_topology("x")


def test_an_unknown_loader_is_answered_with_the_list() -> None:
    """One line that says what there is."""
    with pytest.raises(SeedError, match="no loader 'x': there are copy, http, sql"):
        find_loader("x")
