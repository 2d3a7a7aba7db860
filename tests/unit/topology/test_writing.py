"""A topology is written as the file that it is read from."""

from pathlib import Path

import pytest

from placebench.seeding import find_topology
from placebench.topology import Inventory, Node, Topology, TreeType, read_topology, render_toml


@pytest.mark.parametrize(
    "name", ["nested-perfload", "flat-perfload", "shared-storage", "wide", "deep", "mixed", "partly-used"]
)
def test_each_topology_of_ours_is_read_again(tmp_path: Path, name: str) -> None:
    """Tree types, weights, choices, utilization and all."""
    topology, path = find_topology(name), tmp_path / f"{name}.toml"

    path.write_text(render_toml(topology))

    assert topology == read_topology(path)


def test_providers_alike_are_written_once() -> None:
    """Three of four are: the fourth has more."""
    gpus = [Node(f"gpu{n}", f"cn/gpu{n}", 0, (Inventory("VGPU", 4 if n < 3 else 8),)) for n in range(4)]

    written = render_toml(Topology("t", 1, 1, "/x", (TreeType((Node("cn", "cn"), *gpus)),)))

    assert 'name = "gpu"\ncount = 3\nparent = "cn"\ninventories.VGPU = { total = 4 }\n' in written
    assert 'name = "gpu3"\nparent = "cn"\ninventories.VGPU = { total = 8 }\n' in written
