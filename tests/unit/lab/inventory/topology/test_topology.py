"""An inventory data set: its order, providers and ids."""

from uuid import uuid5

import pytest

from placebench.lab.inventory.seeding import find_topology
from placebench.lab.inventory.topology import Inventory, Node, RandomSubset, ResourceProvider, Topology, TreeType
from placebench.lab.inventory.topology.topology import NAMESPACE, Identity

CUSTOM = Inventory("CUSTOM_SLOT", total=4)


@pytest.fixture
def topology() -> Topology:
    """A pair, three times.

    cn [rack]   CUSTOM_SLOT 4
    └── gpu     HW_GPU_API_VULKAN
    """
    nodes = (
        Node("cn", "cn", inventories=(CUSTOM,), aggregates=("rack",)),
        Node("gpu", "cn/gpu", parent=0, traits=("HW_GPU_API_VULKAN",)),
    )
    return Topology(
        "pair", trees=3, seed=1, request="/allocation_candidates?resources=VCPU:1", tree_types=(TreeType(nodes),)
    )


def test_a_tree_holds_its_providers_with_parent_and_root(topology: Topology) -> None:
    """Names end with the number of the tree; the child names its parent and its root."""
    cn, gpu = topology.tree(2)

    assert cn == ResourceProvider(
        uuid="9518d296-b947-59eb-981d-22e397030ed6",
        name="cn-2",
        parent_uuid=None,
        root_uuid=cn.uuid,
        inventories=(CUSTOM,),
        traits=(),
        aggregate_uuids=(topology.aggregate_uuids["rack"],),
    )
    assert (gpu.name, gpu.parent_uuid, gpu.root_uuid) == ("gpu-2", cn.uuid, cn.uuid)
    assert gpu.traits == ("HW_GPU_API_VULKAN",)


def test_an_aggregate_is_shared_by_the_trees(topology: Topology) -> None:
    """The cloud has one aggregate of each name."""
    aggregates = {uuid for tree in range(3) for provider in topology.tree(tree) for uuid in provider.aggregate_uuids}

    assert aggregates == {topology.aggregate_uuids["rack"]}


def test_the_gates_tree_has_seven_providers_nine_inventories_and_four_traits() -> None:
    """The counts of Placement's own gate job, on its thousand trees."""
    topology = find_topology("nested-perfload")

    traits = sum(len(provider.traits) for tree in range(1000) for provider in topology.tree(tree))

    assert (topology.trees, topology.providers, topology.inventories, traits) == (1000, 7000, 9000, 4000)


def test_a_flat_provider_is_in_one_to_three_aggregates_and_has_one_to_three_traits() -> None:
    """The shape of placeload: each number occurs, and no other."""
    topology = find_topology("flat-perfload", trees=100)

    providers = [provider for tree in range(100) for provider in topology.tree(tree)]

    assert {len(provider.aggregate_uuids) for provider in providers} == {1, 2, 3}
    assert {len(provider.traits) for provider in providers} == {1, 2, 3}
    assert {provider.parent_uuid for provider in providers} == {None}


def test_more_trees_leave_the_first_ones_as_they_are() -> None:
    """A cloud grows at its end."""
    small, large = find_topology("flat-perfload", trees=2), find_topology("flat-perfload", trees=2000)

    assert list(small.tree(1)) == list(large.tree(1))


def test_another_seed_makes_other_ids_and_other_choices() -> None:
    """The seed reaches everything that is drawn."""
    one, two = find_topology("flat-perfload", trees=50, seed=1), find_topology("flat-perfload", trees=50, seed=2)

    assert {one.uuids(tree)[0] for tree in range(50)} & {two.uuids(tree)[0] for tree in range(50)} == set()
    assert [len(next(one.tree(tree)).traits) for tree in range(50)] != [
        len(next(two.tree(tree)).traits) for tree in range(50)
    ]


def test_a_tree_is_made_when_it_is_asked_for() -> None:
    """A cloud of two hundred million trees is as small as one of two: no provider is held."""
    topology = find_topology("nested-perfload", trees=200_000_000)

    assert next(topology.tree(199_999_999)).name == "cn1-199999999"


def test_kinds_of_trees_come_by_turns_in_their_shares() -> None:
    """Of shares 4 and 2 every third tree is of the second kind: seven trees have 5 single providers and 2 pairs."""
    single, pair = Node("a", "a", inventories=(CUSTOM,)), (Node("b", "b"), Node("c", "b/c", parent=0))
    topology = Topology("two", 7, 1, "/x", tree_types=(TreeType((single,), weight=4), TreeType(pair, weight=2)))

    assert [0, 1, 0, 0, 1, 0, 0] == [topology.type_index(number) for number in range(7)]
    assert (9, 5) == (topology.providers, topology.inventories)
    assert ["b-1", "c-1"] == [provider.name for provider in topology.tree(1)]
    assert 9 == sum(len(topology.uuids(number)) for number in range(7))


def test_aggregates_every_so_many_trees_are_others() -> None:
    """Of five trees two and two share, and the last is alone; what each is in by choice is numbered, too."""
    node = Node("a", "a", aggregates=("rack",), some_aggregates=RandomSubset(("pod",), 1, 1))
    topology = Topology("t", 5, 1, "/x", (TreeType((node,)),), aggregates_every=2)

    found = [set(provider.aggregate_uuids) for number in range(5) for provider in topology.tree(number)]

    assert ["pod", "pod/1", "pod/2", "rack", "rack/1", "rack/2"] == list(topology.aggregate_uuids)
    assert found[0] == found[1] != found[2] == found[3] != found[4]
    assert 6 == len(set().union(*found))


def test_an_id_is_the_uuid5_of_seed_topology_and_path() -> None:
    """The quick way makes what the standard library makes."""
    paths = [f"{tree}/cn1/n{place}" for tree in range(100) for place in range(2)]

    assert [str(uuid5(NAMESPACE, f"7/nested/{path}")) for path in paths] == [
        Identity(7, "nested").uuid(path) for path in paths
    ]


def test_an_id_is_the_same_on_every_machine() -> None:
    """A literal, so that no later version gives other ids to the same path."""
    assert Identity(1, "nested-perfload").uuid("3/cn1") == "3b701086-88fb-56f4-b09f-b5e0b997521c"


def test_seed_topology_and_path_each_make_another_id() -> None:
    """Nothing that names a provider is left out of its id."""
    ids = {Identity(seed, name).uuid(path) for seed in (1, 2) for name in ("a", "b") for path in ("0/cn", "1/cn")}

    assert len(ids) == 8


def test_a_number_is_the_same_on_every_machine() -> None:
    """Chance can be repeated: a literal again."""
    assert Identity(1, "flat").number("0/cn/traits") == 996028154808331994969297478992828099042345072938
