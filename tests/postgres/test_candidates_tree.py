"""Candidates within nested trees: groups, traits, aggregates, group_policy, same_subtree, limit, summaries."""

from typing import Any

import pytest


@pytest.fixture
def trees(cloud: Any) -> Any:
    """Two trees of two NUMA nodes; the second has one device less and a node without the trait.

    cn1   DISK_GB 100, SSD                 cn2   DISK_GB 100
     ├ n1a   VCPU 4, RED                    ├ n2a   VCPU 4, RED
     │  └ g1a   VGPU 2                      │  └ g2a   VGPU 2
     └ n1b   VCPU 4, BLUE                   └ n2b   VCPU 4
        └ g1b   VGPU 2
    """
    for tree, disk_traits, blue in (("1", "STORAGE_DISK_SSD", "CUSTOM_BLUE"), ("2", "", "")):
        cloud.add(f"cn{tree}", traits=disk_traits, DISK_GB=100)
        cloud.add(f"n{tree}a", parent=f"cn{tree}", traits="CUSTOM_RED", VCPU=4)
        cloud.add(f"n{tree}b", parent=f"cn{tree}", traits=blue, VCPU=4)
        cloud.add(f"g{tree}a", parent=f"n{tree}a", VGPU=2)
    cloud.add("g1b", parent="n1b", VGPU=2)
    return cloud


def test_the_group_without_suffix_spreads_over_one_tree(trees: Any) -> None:
    """Disk and processors come from two providers, but never from two trees; a class is never split."""
    expected = [
        "cn1 DISK_GB:10, n1a VCPU:3",
        "cn1 DISK_GB:10, n1b VCPU:3",
        "cn2 DISK_GB:10, n2a VCPU:3",
        "cn2 DISK_GB:10, n2b VCPU:3",
    ]

    assert expected == trees.candidates("resources=DISK_GB:10,VCPU:3")
    assert trees.candidates("resources=VCPU:5") == []


def test_a_group_with_a_suffix_takes_all_from_one_provider(trees: Any) -> None:
    """Nobody has both disk and processors."""
    assert trees.candidates("resources_A=DISK_GB:10,VCPU:3") == []


def test_traits_of_the_spread_group_are_those_of_the_providers_used(trees: Any) -> None:
    """SSD and RED are held by two providers that both give something; the trait of one that gives nothing is none."""
    assert trees.candidates("resources=DISK_GB:10,VCPU:1&required=STORAGE_DISK_SSD,CUSTOM_RED") == [
        "cn1 DISK_GB:10, n1a VCPU:1"
    ]
    assert trees.candidates("resources=VCPU:1&required=STORAGE_DISK_SSD") == []


def test_a_forbidden_trait_excludes_who_holds_it(trees: Any) -> None:
    """Only nodes without RED; Placement on PostgreSQL responds 500 for this query (its defect D1)."""
    assert trees.candidates("resources=VCPU:1&required=!CUSTOM_RED") == ["n1b VCPU:1", "n2b VCPU:1"]
    assert trees.candidates("resources_A=VCPU:1&required_A=!CUSTOM_RED") == ["n1b VCPU:1", "n2b VCPU:1"]


def test_one_of_several_traits_is_enough(trees: Any) -> None:
    """in: names alternatives, and repeated parameters all count."""
    assert trees.candidates("resources=VCPU:1&required=in:CUSTOM_RED,CUSTOM_BLUE") == [
        "n1a VCPU:1",
        "n1b VCPU:1",
        "n2a VCPU:1",
    ]
    assert trees.candidates("resources=VCPU:1&required=in:CUSTOM_RED,CUSTOM_BLUE&required=!CUSTOM_RED") == [
        "n1b VCPU:1"
    ]


def test_groups_meet_in_one_tree(trees: Any) -> None:
    """Two groups with suffixes, each anywhere in the same tree."""
    expected = [
        "g1a VGPU:1, n1a VCPU:1",
        "g1a VGPU:1, n1b VCPU:1",
        "g1b VGPU:1, n1a VCPU:1",
        "g1b VGPU:1, n1b VCPU:1",
        "g2a VGPU:1, n2a VCPU:1",
        "g2a VGPU:1, n2b VCPU:1",
    ]

    assert expected == trees.candidates("resources_C=VCPU:1&resources_G=VGPU:1&group_policy=none")


def test_same_subtree_wants_one_provider_above_the_others(trees: Any) -> None:
    """A device goes with its own node; a sibling's device does not."""
    expected = ["g1a VGPU:1, n1a VCPU:1", "g1b VGPU:1, n1b VCPU:1", "g2a VGPU:1, n2a VCPU:1"]

    assert expected == trees.candidates("resources_C=VCPU:1&resources_G=VGPU:1&group_policy=none&same_subtree=_C,_G")


def test_each_same_subtree_stands_for_itself(trees: Any) -> None:
    """Two constraints over three groups; the disk on the root is above everything."""
    query = "resources_C=VCPU:1&resources_G=VGPU:1&resources_D=DISK_GB:1&group_policy=none"

    assert len(trees.candidates(f"{query}&same_subtree=_C,_D&same_subtree=_D,_G")) == 6
    assert len(trees.candidates(f"{query}&same_subtree=_C,_D&same_subtree=_C,_G")) == 3


def test_a_group_without_resources_takes_part_with_its_provider(trees: Any) -> None:
    """The node with BLUE gives nothing, is named in the mappings, and holds the device below it."""
    query = "resources_G=VGPU:1&required_N=CUSTOM_BLUE&group_policy=none&same_subtree=_N,_G"

    assert trees.candidates(query) == ["g1b VGPU:1"]
    assert trees.mappings(query) == ["_G=g1b _N=n1b"]


@pytest.mark.parametrize("filters", ["required_N=!CUSTOM_BLUE", "in_tree_N={n1b}", "member_of_N=!{nowhere}"])
def test_a_group_without_resources_needs_a_positive_filter(trees: Any, filters: str) -> None:
    """Without one it names nobody, and the response is empty (Placement's oddity D7, copied)."""
    assert trees.candidates(f"resources_G=VGPU:1&{filters}&group_policy=none&same_subtree=_N,_G") == []


def test_isolate_keeps_groups_with_suffixes_apart(trees: Any) -> None:
    """Two devices in cn1 serve two groups, in either order; cn2 has one device. Without isolate one may serve both."""
    query = "resources_A=VGPU:1&resources_B=VGPU:1"

    assert trees.candidates(f"{query}&group_policy=isolate") == ["g1a VGPU:1, g1b VGPU:1", "g1a VGPU:1, g1b VGPU:1"]
    assert trees.mappings(f"{query}&group_policy=isolate") == ["_A=g1a _B=g1b", "_A=g1b _B=g1a"]
    assert trees.candidates(f"{query}&group_policy=none") == [
        "g1a VGPU:1, g1b VGPU:1",
        "g1a VGPU:1, g1b VGPU:1",
        "g1a VGPU:2",
        "g1b VGPU:2",
        "g2a VGPU:2",
    ]


def test_isolate_exempts_the_group_without_suffix(trees: Any) -> None:
    """It may share the provider of another group."""
    assert "g2a VGPU:2" in trees.candidates("resources=VGPU:1&resources_A=VGPU:1&group_policy=isolate")


def test_root_required_speaks_of_the_root_only(trees: Any) -> None:
    """Trees whose root holds a trait, or does not; a trait further down does not count."""
    assert trees.candidates("resources=VGPU:1&root_required=STORAGE_DISK_SSD") == ["g1a VGPU:1", "g1b VGPU:1"]
    assert trees.candidates("resources_G=VGPU:1&root_required=!STORAGE_DISK_SSD") == ["g2a VGPU:1"]
    assert trees.candidates("resources=VGPU:1&root_required=CUSTOM_RED") == []


@pytest.mark.parametrize("more", ["", "&resources=VGPU:1", "&limit=1", "&limit=9", "&resources1=VGPU:1"])
def test_an_unknown_in_tree_leaves_a_group_without_resources_nothing(trees: Any, more: str) -> None:
    """The trait alone selects a provider, also with an in_tree that names a provider of another tree."""
    query = f"resources_G=VGPU:1&required_N=CUSTOM_BLUE&same_subtree=_N,_G&group_policy=none{more}"

    assert trees.candidates(f"{query}&in_tree_N={{cn1}}") == trees.candidates(query) != []
    assert trees.candidates(f"{query}&in_tree_N={{nowhere}}") == []


def test_in_tree_names_any_provider_of_the_tree(trees: Any) -> None:
    """The tree is that of the provider named, wherever in it the provider is."""
    assert trees.candidates("resources=VGPU:1&in_tree={n2b}") == ["g2a VGPU:1"]
    assert trees.candidates("resources_G=VGPU:1&in_tree_G={cn2}") == ["g2a VGPU:1"]
    assert trees.candidates("resources=VGPU:1&in_tree={nowhere}") == []


def test_an_aggregate_on_the_root_spans_the_tree_for_the_spread_group_only(cloud: Any) -> None:
    """A group with a suffix wants the provider itself in the aggregate; a forbidden aggregate works alike.

    cn1 [agg] ─ n1   VCPU 4            cn2 ─ n2 [agg]   VCPU 4
    """
    cloud.add("cn1", aggregates="agg")
    cloud.add("n1", parent="cn1", VCPU=4)
    cloud.add("cn2")
    cloud.add("n2", parent="cn2", aggregates="agg", VCPU=4)

    assert cloud.candidates("resources=VCPU:1&member_of={agg}") == ["n1 VCPU:1", "n2 VCPU:1"]
    assert cloud.candidates("resources_A=VCPU:1&member_of_A={agg}") == ["n2 VCPU:1"]
    assert cloud.candidates("resources=VCPU:1&member_of=!{agg}") == []
    assert cloud.candidates("resources_A=VCPU:1&member_of_A=!{agg}") == ["n1 VCPU:1"]


def test_member_of_alternatives_and_repetition(cloud: Any) -> None:
    """in: names alternatives, repeated parameters all count, an unknown aggregate has no members."""
    cloud.add("one", aggregates="east", VCPU=1)
    cloud.add("two", aggregates="east ssd", VCPU=1)
    cloud.add("three", aggregates="ssd", VCPU=1)

    assert cloud.candidates("resources=VCPU:1&member_of=in:{east},{unknown}") == ["one VCPU:1", "two VCPU:1"]
    assert cloud.candidates("resources=VCPU:1&member_of={east}&member_of={ssd}") == ["two VCPU:1"]
    assert cloud.candidates("resources=VCPU:1&member_of=!{east}") == ["three VCPU:1"]
    assert cloud.candidates("resources=VCPU:1&member_of=!in:{east},{ssd}") == []
    assert cloud.candidates("resources=VCPU:1&member_of={unknown}") == []


def test_summaries_are_of_whole_trees(trees: Any) -> None:
    """All five providers of the one tree with a candidate, those that give nothing too, with all they have."""
    document = trees.document("resources_G=VGPU:1&in_tree_G={g2a}")

    def summary(parent: str | None, name: str | None, capacity: int, *traits: str) -> dict[str, Any]:
        resources = {name: {"capacity": capacity, "used": 0}} if name else {}
        tree = {"parent_provider_uuid": parent, "root_provider_uuid": "cn2"}
        return {"resources": resources, "traits": list(traits), **tree}

    assert {
        "cn2": summary(None, "DISK_GB", 100),
        "n2a": summary("cn2", "VCPU", 4, "CUSTOM_RED"),
        "n2b": summary("cn2", "VCPU", 4),
        "g2a": summary("n2a", "VGPU", 2),
    } == document["provider_summaries"]


@pytest.mark.parametrize("name", ["naive", "own"])
@pytest.mark.parametrize(("limit", "count"), [(1, 1), (3, 3), (4, 4), (5, 4), (10**30, 4)])
def test_a_limit_keeps_that_many_and_the_trees_of_just_those(trees: Any, name: str, limit: int, count: int) -> None:
    """Distinct members of the full response, and summaries of no other tree."""
    query = "resources=DISK_GB:10,VCPU:3"
    everything = trees.document(query, name)

    limited = trees.document(f"{query}&limit={limit}", name)

    requests = limited["allocation_requests"]
    assert count == len(requests)
    assert all(request in everything["allocation_requests"] for request in requests)
    assert count == len({str(request) for request in requests})
    roots = {key: summary["root_provider_uuid"] for key, summary in limited["provider_summaries"].items()}
    assert {roots[key] for each in requests for key in each["allocations"]} == set(roots.values())
