"""GET /resource_providers narrowed by what providers have: each of them by itself."""

from typing import Any

import pytest

AGG1, AGG2 = (f"aaaaaaaa-0000-4000-8000-{number:012d}" for number in (1, 2))


@pytest.fixture
def few(service: Any) -> Any:
    """rp1: VCPU 8 of which 6 are used, AVX, agg1; rp2: VCPU 4, DISK_GB 10, agg1 agg2; rp3: nothing."""
    for number in (1, 2, 3):
        service.provider(number)
    stocks = {1: {"VCPU": {"total": 8}}, 2: {"VCPU": {"total": 4}, "DISK_GB": {"total": 10, "step_size": 5}}}
    for number, stock in stocks.items():
        path = f"/resource_providers/00000000-0000-4000-8000-{number:012d}"
        service.send("PUT", f"{path}/inventories", {"resource_provider_generation": 0, "inventories": stock})
        aggregates = [AGG1] if number == 1 else [AGG1, AGG2]
        service.send("PUT", f"{path}/aggregates", {"resource_provider_generation": 1, "aggregates": aggregates})
        names = ["HW_CPU_X86_AVX"] if number == 1 else []
        service.send("PUT", f"{path}/traits", {"resource_provider_generation": 2, "traits": names})
    claim = {
        "allocations": {"00000000-0000-4000-8000-000000000001": {"resources": {"VCPU": 6}}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    assert service.send("PUT", f"/allocations/{AGG1}", claim).status_code == 204
    return service


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("resources=VCPU:2", ["rp1", "rp2"]),
        ("resources=VCPU:3", ["rp2"]),
        ("resources=VCPU&resources=VCPU:3", ["rp2"]),
        ("resources=VCPU:1,DISK_GB:5", ["rp2"]),
        ("resources=VCPU:1,DISK_GB:4", []),
        (f"resources=VCPU:{10**30}", []),
        ("required=HW_CPU_X86_AVX", ["rp1"]),
        ("required=!HW_CPU_X86_AVX", ["rp2", "rp3"]),
        ("required=in:HW_CPU_X86_AVX&resources=VCPU:3", []),
        (f"member_of={AGG1}", ["rp1", "rp2"]),
        (f"member_of=in:{AGG1},{AGG2}&member_of=!{AGG2}", ["rp1"]),
        (f"member_of={AGG2}&name=rp1", []),
    ],
)
def test_every_filter_must_hold(few: Any, query: str, expected: list[str]) -> None:
    """Room, traits and aggregates of the provider itself."""
    found = few.get(f"/resource_providers?{query}")["resource_providers"]

    assert [provider["name"] for provider in found] == expected


@pytest.mark.parametrize(
    "query",
    ["resources=NO:1", "resources=VCPU", "required=NO", "required=", "required=!NO", "member_of=x"],
)
def test_what_means_nothing_is_a_bad_request(few: Any, query: str) -> None:
    """Unknown classes and traits, and what has no such form."""
    assert few.outcome("GET", f"/resource_providers?{query}") == (400, "placement.undefined_code")
