"""Which providers have room: capacity, reserved, ratio, units and usages; and the document that says so."""

from typing import Any

import pytest


@pytest.fixture
def host(cloud: Any) -> Any:
    """One provider that has nothing but processors, with a rule of each kind on them.

    host   VCPU 10, 2 reserved, ratio 1.5: capacity 12; min 2, max 8, step 2; 3 used
    """
    rules = {"total": 10, "reserved": 2, "allocation_ratio": 1.5, "min_unit": 2, "max_unit": 8, "step_size": 2}
    cloud.add("host", VCPU=rules, used={"VCPU": 3})
    return cloud


@pytest.mark.parametrize("amount", [2, 4, 6, 8])
def test_an_amount_within_all_rules_fits(host: Any, amount: int) -> None:
    """Even amounts from min_unit to max_unit fit while used and amount stay within 12."""
    assert [f"host VCPU:{amount}"] == host.candidates(f"resources=VCPU:{amount}")


@pytest.mark.parametrize("amount", [1, 3, 10, 2**31, 2**70])
def test_an_amount_against_a_rule_does_not_fit(host: Any, amount: int) -> None:
    """Below min_unit, off the step, above max_unit, above what a column can hold, above what SQLite can bind."""
    assert host.candidates(f"resources=VCPU:{amount}") == []


def test_used_amounts_are_not_free(cloud: Any) -> None:
    """Of 4 with 2 used, 2 fit and 3 do not."""
    cloud.add("host", VCPU=4, used={"VCPU": 2})

    assert cloud.candidates("resources=VCPU:2") == ["host VCPU:2"]
    assert cloud.candidates("resources=VCPU:3") == []


def test_the_document_of_one_flat_provider(host: Any) -> None:
    """Allocations, mappings and the summary; the capacity is (10 - 2) * 1.5."""
    expected = {
        "allocation_requests": [{"allocations": {"host": {"resources": {"VCPU": 2}}}, "mappings": {"": ["host"]}}],
        "provider_summaries": {
            "host": {
                "resources": {"VCPU": {"capacity": 12, "used": 3}},
                "traits": [],
                "parent_provider_uuid": None,
                "root_provider_uuid": "host",
            }
        },
    }

    assert expected == host.document("resources=VCPU:2")


def test_a_capacity_is_truncated(cloud: Any) -> None:
    """7 at a ratio of 1.3 is 9.1: a capacity of 9, of which 9 fit."""
    cloud.add("host", VCPU={"total": 7, "allocation_ratio": 1.3})

    document = cloud.document("resources=VCPU:9")

    assert document["provider_summaries"]["host"]["resources"] == {"VCPU": {"capacity": 9, "used": 0}}
    assert cloud.candidates("resources=VCPU:10") == []


def test_nothing_fits_in_an_empty_database(cloud: Any) -> None:
    """Without providers the response is the empty document."""
    assert cloud.document("resources=VCPU:1") == {"allocation_requests": [], "provider_summaries": {}}


def test_two_groups_may_not_take_more_than_there_is(cloud: Any) -> None:
    """Each of two groups fits by itself into the one free unit; together they do not.

    Placement with optimize_for_wide_provider_trees forgets what is used (its defect D9).
    """
    cloud.add("host", VGPU={"total": 2}, used={"VGPU": 1})

    assert cloud.candidates("resources1=VGPU:1&resources2=VGPU:1&group_policy=none") == []


def test_two_groups_may_not_take_more_than_max_unit_at_once(cloud: Any) -> None:
    """Two groups of 1 are 2, and max_unit is 1, though 8 are free."""
    cloud.add("host", VGPU={"total": 8, "max_unit": 1})

    assert cloud.candidates("resources1=VGPU:1&resources2=VGPU:1&group_policy=none") == []


@pytest.mark.parametrize("policy", ["", "&group_policy=none", "&group_policy=isolate"])
def test_amounts_of_several_groups_are_summed_once(cloud: Any, policy: str) -> None:
    """2 without a suffix and 1 with one: each candidate has 3 in all, whatever the policy.

    Placement sums in shared objects unless the policy is none, and gives other amounts (its defect D5).

    cn ┬ a   VGPU 3
       └ b   VGPU 3
    """
    cloud.add("cn")
    cloud.add("a", parent="cn", VGPU=3)
    cloud.add("b", parent="cn", VGPU=3)

    expected = ["a VGPU:1, b VGPU:2", "a VGPU:2, b VGPU:1", "a VGPU:3", "b VGPU:3"]
    assert expected == cloud.candidates(f"resources=VGPU:2&resources1=VGPU:1{policy}", "own")
    assert expected == cloud.candidates(f"resources=VGPU:2&resources1=VGPU:1{policy}", "naive")
