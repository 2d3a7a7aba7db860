"""From a cloud as it was read to a topology: what is merged, what is kept, what is lost and told."""

from pathlib import Path

import pytest

from placebench.errors import ExportError
from placebench.lab.inventory.export.exporter import MAX_PATTERNS, export
from placebench.lab.inventory.export.live_placement import LiveAllocation, LiveProvider, PlacementData
from placebench.lab.inventory.topology import ClaimPattern, Inventory, Take, read_topology, render_toml

GPU, DISK = Inventory("VGPU", 4), Inventory("DISK_GB", 100)


def host(name: str, gpus: str, *, aggregate: str = "rack") -> list[LiveProvider]:
    """A host with GPUs below it, one for each letter.

    host
    ├── host-a
    └── host-b
    """
    root = LiveProvider(name, None, (DISK,), frozenset({"CUSTOM_OURS", "HW_NUMA_ROOT"}), frozenset({aggregate}))
    return [root, *(LiveProvider(f"{name}-{gpu}", name, (GPU,), frozenset(), frozenset()) for gpu in gpus)]


def consumers(*providers: str) -> dict[str, tuple[LiveAllocation, ...]]:
    """A consumer with one VGPU of each of these."""
    return {f"c{number}": (LiveAllocation(name, "VGPU", 1),) for number, name in enumerate(providers)}


def test_trees_of_the_same_shape_are_one_kind() -> None:
    """Whatever their names and in whatever order; another number of GPUs or another aggregate is another tree_type."""
    providers = [*host("x", "ab"), *reversed(host("y", "dc")), *host("z", "a"), *host("w", "ab", aggregate="other")]

    topology = export(PlacementData(tuple(providers), {}), salt="s").topology

    assert (4, [2, 1, 1]) == (topology.trees, [tree_type.weight for tree_type in topology.tree_types])
    assert ["p", "p_0", "p_1"] == [node.name for node in topology.tree_types[0].nodes]
    assert [None, 0, 0] == [node.parent for node in topology.tree_types[0].nodes]
    assert topology.aggregates_every == 4


def test_which_of_two_alike_is_used_does_not_matter() -> None:
    """In x the first GPU is used and in y the second: both trees have one consumer of the first."""
    cloud = PlacementData((*host("x", "ab"), *host("y", "ab")), consumers("x-a", "y-b"))

    (tree_type,) = export(cloud, salt="s").topology.tree_types

    assert tree_type.claims == (ClaimPattern((Take(1, "VGPU", 1),), (1,)),)


def test_each_use_comes_as_often_as_it_does() -> None:
    """Of six hosts two are empty and four have one consumer: three turns, two of them with one."""
    providers = [provider for number in range(6) for provider in host(f"h{number}", "a")]

    (tree_type,) = export(
        PlacementData(tuple(providers), consumers("h0-a", "h2-a", "h3-a", "h5-a")), salt="s"
    ).topology.tree_types

    (claim,) = tree_type.claims
    assert [0, 1, 1] == sorted(claim.counts)


def test_many_trees_are_stood_for_by_some() -> None:
    """Of 402 hosts with 0 to 401 consumers each second stands for two, in an order that mixes empty and full ones."""
    wide = Inventory("VGPU", 1000)
    providers = [LiveProvider(f"h{n:03}", None, (wide,), frozenset(), frozenset()) for n in range(402)]
    found = {f"{n}/{m}": (LiveAllocation(f"h{n:03}", "VGPU", 1),) for n in range(402) for m in range(n)}

    exported = export(PlacementData(tuple(providers), found), salt="s")

    (claim,) = exported.topology.tree_types[0].claims
    assert (MAX_PATTERNS, 1, 400) == (len(claim.counts), min(claim.counts), max(claim.counts))
    assert 190 < sum(claim.counts[:10]) / 10 < 210
    assert ("trees whose use is left out, since a sample of their type stands for it: 202",) == exported.losses


def test_inventories_that_no_topology_may_have_are_left_out() -> None:
    """A total of nothing, more reserved than there is; and who has something of them is told."""
    nothing, reserved = Inventory("VCPU", 0), Inventory("MEMORY_MB", 8, reserved=9)
    provider = LiveProvider("x", None, (nothing, reserved, DISK), frozenset(), frozenset())

    exported = export(PlacementData((provider,), {"c": (LiveAllocation("x", "VCPU", 1),)}), salt="s", request="/x")

    assert (DISK,) == exported.topology.tree_types[0].nodes[0].inventories
    assert exported.losses == (
        "inventories left out, of nothing or with a reserve or ratio that no topology may have: 2",
        "consumers left out of a tree, since Placement would not give today what they have: 1",
    )


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({}, "resources=VGPU:1"),
        ({"a": [("x", "DISK_GB", 9), ("x-a", "VGPU", 2)]}, "resources=DISK_GB:9,VGPU:2"),
        (
            {"a": [("x-a", "VGPU", 1)], "b": [("x", "DISK_GB", 9), ("x-a", "VGPU", 2)], "c": [("x-b", "VGPU", 1)]},
            "resources=VGPU:1",
        ),
        (
            {"b": [("x", "DISK_GB", 9), ("x-a", "VGPU", 1), ("x-b", "VGPU", 2)]},
            "resources=DISK_GB:9&resources_0=VGPU:1&resources_1=VGPU:2&group_policy=none",
        ),
    ],
)
def test_what_most_consumers_have_is_asked_for(used: dict[str, list[tuple[str, str, int]]], expected: str) -> None:
    """Nobody: the least of what most inventories are of; a class of several providers: a group each."""
    cloud = PlacementData(
        tuple(host("x", "ab")), {name: tuple(LiveAllocation(*each) for each in has) for name, has in used.items()}
    )

    assert f"/allocation_candidates?{expected}" == export(cloud, salt="s").topology.request


def test_a_request_gets_the_names_of_the_file() -> None:
    """The custom trait as the provider has it; standard names stay."""
    request = "/allocation_candidates?resources=DISK_GB:1&required=CUSTOM_OURS,HW_NUMA_ROOT"

    topology = export(PlacementData(tuple(host("x", "")), {}), salt="s", request=request).topology

    custom, standard = topology.tree_types[0].nodes[0].traits
    assert ("HW_NUMA_ROOT", True) == (standard, custom.startswith("CUSTOM_") and custom != "CUSTOM_OURS")
    assert topology.request.endswith(f"required={custom},HW_NUMA_ROOT")


def test_a_class_of_a_later_standard_is_a_custom_one(tmp_path: Path) -> None:
    """What no topology may name would make a file that cannot be read."""
    later = LiveProvider("x", None, (Inventory("QUANTUM_BIT", 4),), frozenset({"QUANTUM_FAST"}), frozenset())
    path = tmp_path / "later.toml"

    path.write_text(render_toml(export(PlacementData((later,), {}), salt="s").topology))

    (node,) = read_topology(path).tree_types[0].nodes
    assert node.inventories[0].resource_class.startswith("CUSTOM_")
    assert node.traits[0].startswith("CUSTOM_")


def test_the_same_salt_gives_the_same_names() -> None:
    """And another one others."""
    cloud = PlacementData(tuple(host("x", "ab")), {})

    one, again, other = (export(cloud, salt=salt).topology for salt in ("s", "s", "t"))

    assert one == again
    assert one.tree_types[0].nodes[0].traits != other.tree_types[0].nodes[0].traits
    assert one.tree_types[0].nodes[0].aggregates != other.tree_types[0].nodes[0].aggregates


def test_an_empty_cloud_is_told() -> None:
    """There is nothing to export."""
    with pytest.raises(ExportError, match="has no resource providers"):
        export(PlacementData((), {}), salt="s")
