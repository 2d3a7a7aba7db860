"""Providers that share with other trees through aggregates, and the anchors at which they do."""

from typing import Any

import pytest

from placebench.lab.reference.domain.problems import BadRequest

SHARES = "MISC_SHARES_VIA_AGGREGATE"


@pytest.fixture
def storage(cloud: Any) -> Any:
    """Two compute nodes in an aggregate with shared storage, and one outside.

    cn1 [agg]   VCPU 4        cn2 [agg]   VCPU 4, DISK_GB 50        cn3   VCPU 4
    ss  [agg]   DISK_GB 100, shares
    """
    cloud.add("cn1", aggregates="agg", VCPU=4)
    cloud.add("cn2", aggregates="agg", VCPU=4, DISK_GB=50)
    cloud.add("cn3", VCPU=4)
    cloud.add("ss", aggregates="agg", traits=SHARES, DISK_GB=100)
    return cloud


def test_a_sharing_provider_gives_to_the_trees_of_its_aggregate(storage: Any) -> None:
    """cn3 is in no aggregate and has no disk."""
    expected = ["cn1 VCPU:1, ss DISK_GB:10", "cn2 DISK_GB:10, cn2 VCPU:1", "cn2 VCPU:1, ss DISK_GB:10"]

    assert expected == storage.candidates("resources=VCPU:1,DISK_GB:10")


def test_a_sharing_provider_serves_a_group_with_a_suffix(storage: Any) -> None:
    """The same three, from two groups."""
    expected = ["cn1 VCPU:1, ss DISK_GB:10", "cn2 DISK_GB:10, cn2 VCPU:1", "cn2 VCPU:1, ss DISK_GB:10"]

    assert expected == storage.candidates("resources1=DISK_GB:10&resources2=VCPU:1&group_policy=none")


@pytest.mark.parametrize("name", ["naive", "own"])
def test_solutions_that_differ_in_the_anchor_only_are_kept_until_the_merge(storage: Any, name: str) -> None:
    """Storage alone solves the group without suffix, at cn1, cn2 and ss: both nodes are candidates with it.

    Placement takes the three for one and loses a candidate, which one depends on the hash seed (its defect D4).
    """
    expected = ["cn1 VCPU:1, ss DISK_GB:10", "cn2 DISK_GB:10, cn2 VCPU:1", "cn2 VCPU:1, ss DISK_GB:10"]

    assert expected == storage.candidates("resources=DISK_GB:10&resources1=VCPU:1", name)


@pytest.mark.parametrize("name", ["naive", "own"])
def test_a_candidate_comes_once_though_it_has_several_anchors(storage: Any, name: str) -> None:
    """Storage alone, which three anchors could take, is one candidate; with a limit of 2 both are distinct."""
    assert storage.candidates("resources=DISK_GB:10", name) == ["cn2 DISK_GB:10", "ss DISK_GB:10"]
    assert storage.candidates("resources=DISK_GB:10&limit=2", name) == ["cn2 DISK_GB:10", "ss DISK_GB:10"]


def test_the_tree_of_the_anchor_is_not_listed_if_it_gives_nothing(storage: Any) -> None:
    """Only the storage's own tree is summarised."""
    document = storage.document("resources=DISK_GB:60")

    assert list(document["provider_summaries"]) == ["ss"]


def test_a_sharing_provider_below_a_root_can_serve_other_trees(cloud: Any) -> None:
    """Its own tree cannot satisfy the request; Placement responds 500 (its defect D3).

    cn [agg]   VCPU 4            rack ─ ss [agg]   DISK_GB 100, shares
    """
    cloud.add("cn", aggregates="agg", VCPU=4)
    cloud.add("rack")
    cloud.add("ss", parent="rack", aggregates="agg", traits=SHARES, DISK_GB=100)

    document = cloud.document("resources=VCPU:1,DISK_GB:10")

    assert cloud.candidates("resources=VCPU:1,DISK_GB:10") == ["cn VCPU:1, ss DISK_GB:10"]
    assert {"cn", "rack", "ss"} == set(document["provider_summaries"])


def test_any_member_of_a_tree_makes_it_an_anchor(cloud: Any) -> None:
    """The NUMA node is in the aggregate, its root is not.

    cn   VCPU 4 ─ numa [agg]            ss [agg]   DISK_GB 100, shares
    """
    cloud.add("cn", VCPU=4)
    cloud.add("numa", parent="cn", aggregates="agg")
    cloud.add("ss", aggregates="agg", traits=SHARES, DISK_GB=100)

    assert cloud.candidates("resources=VCPU:1,DISK_GB:10") == ["cn VCPU:1, ss DISK_GB:10"]


def test_in_tree_lets_no_sharing_provider_in_from_outside(storage: Any) -> None:
    """Only cn2 has a disk of its own."""
    assert storage.candidates("resources=VCPU:1,DISK_GB:10&in_tree={cn1}") == []
    assert storage.candidates("resources=VCPU:1,DISK_GB:10&in_tree={cn2}") == ["cn2 DISK_GB:10, cn2 VCPU:1"]


def test_a_sharing_provider_must_itself_be_a_member(cloud: Any) -> None:
    """The root's aggregate spans its tree, but not the storage that shares with it.

    cn1 [agg east]   VCPU 4       cn2 [agg]   VCPU 4       ss [agg]   DISK_GB 100, shares
    """
    cloud.add("cn1", aggregates="agg east", VCPU=4)
    cloud.add("cn2", aggregates="agg", VCPU=4)
    cloud.add("ss", aggregates="agg", traits=SHARES, DISK_GB=100)

    assert cloud.candidates("resources=VCPU:1,DISK_GB:10&member_of={east}") == []
    assert cloud.candidates("resources=VCPU:1,DISK_GB:10&member_of=!{east}") == ["cn2 VCPU:1, ss DISK_GB:10"]


def test_root_required_speaks_of_the_anchor(cloud: Any) -> None:
    """The storage's root needs no trait when it serves a tree whose root has it."""
    cloud.add("cn1", aggregates="agg", traits="CUSTOM_RED", VCPU=4)
    cloud.add("cn2", aggregates="agg", VCPU=4)
    cloud.add("ss", aggregates="agg", traits=SHARES, DISK_GB=100)

    assert cloud.candidates("resources=VCPU:1,DISK_GB:10&root_required=CUSTOM_RED") == ["cn1 VCPU:1, ss DISK_GB:10"]
    assert cloud.candidates("resources1=DISK_GB:10&root_required=CUSTOM_RED") == ["ss DISK_GB:10"]


def test_a_sharing_provider_of_another_tree_is_in_no_same_subtree(storage: Any) -> None:
    """Only the node with its own disk; a single provider is in its own subtree."""
    query = "resources1=DISK_GB:10&resources2=VCPU:1&group_policy=none&same_subtree=1,2"

    assert storage.candidates(query) == ["cn2 DISK_GB:10, cn2 VCPU:1"]


def test_a_forbidden_trait_speaks_of_sharing_providers_too(storage: Any) -> None:
    """Without the storage, cn2 is left."""
    assert storage.candidates(f"resources=VCPU:1,DISK_GB:10&required=!{SHARES}") == ["cn2 DISK_GB:10, cn2 VCPU:1"]


def test_an_earlier_empty_group_hides_a_later_error(storage: Any) -> None:
    """Groups are solved in the order of the query: first nothing fits, then nobody looks at the unknown trait (D8)."""
    hidden = "resources=VGPU:100&resources1=VCPU:1&required1=CUSTOM_NOBODY"
    seen = "resources1=VCPU:1&required1=CUSTOM_NOBODY&resources=VGPU:100"

    assert storage.candidates(hidden) == []
    with pytest.raises(BadRequest, match="CUSTOM_NOBODY"):
        storage.candidates(seen)


@pytest.mark.parametrize(
    "query",
    [
        "resources=CUSTOM_NOTHING:1",
        "resources=VCPU:1&required=CUSTOM_NOBODY",
        "resources=VCPU:1&required=!CUSTOM_NOBODY",
        "resources=VCPU:1&required=in:CUSTOM_RED,CUSTOM_NOBODY",
        "resources=VGPU:100&root_required=CUSTOM_NOBODY",
        "resources=VGPU:100&root_required=!CUSTOM_NOBODY",
    ],
)
def test_unknown_names_are_the_clients_mistake(storage: Any, query: str) -> None:
    """Each is a 400 with the name in it."""
    with pytest.raises(BadRequest, match="CUSTOM_NO"):
        storage.candidates(query)


@pytest.mark.parametrize(
    "query",
    [
        "resources=VCPU:1&member_of={unknown}&required=CUSTOM_NOBODY",
        "resources=VCPU:1&root_required=CUSTOM_BLUE&required=CUSTOM_NOBODY",
        "resources=VCPU:1&in_tree={unknown}&resources1=CUSTOM_NOTHING:1",
    ],
)
def test_an_empty_filter_hides_what_comes_after_it(storage: Any, query: str) -> None:
    """No member, no allowed root, no such tree: the response is empty before the unknown name is looked at."""
    assert storage.candidates(query) == []
