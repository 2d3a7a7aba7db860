"""The reshaper over HTTP: inventories and allocations change together or not at all."""

from typing import Any

import pytest


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


ONE, TWO, CONSUMER = uuid(1), uuid(2), uuid(101)
ROLE = {"X-Roles": "service"}


def claim(allocations: Any, generation: int | None) -> dict[str, Any]:
    """The body that gives the consumer these amounts by class by provider."""
    return {
        "allocations": {provider: {"resources": resources} for provider, resources in allocations.items()},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def stock(generation: int, **totals: int) -> dict[str, Any]:
    """The final inventories of a provider."""
    inventories = {name: {"total": total} for name, total in totals.items()}
    return {"resource_provider_generation": generation, "inventories": inventories}


@pytest.fixture
def full(service: Any) -> Any:
    """Provider 1 (generation 2) has 8 VCPU and 10 DISK_GB, all of them the consumer's; provider 2 has nothing."""
    service.send("PUT", f"{service.provider(1)}/inventories", stock(0, VCPU=8, DISK_GB=10))
    service.send("PUT", f"/allocations/{CONSUMER}", claim({ONE: {"VCPU": 8, "DISK_GB": 10}}, None))
    service.provider(2)
    return service


def reshape(service: Any, inventories: Any, allocations: Any) -> tuple[int, str | None]:
    """Status and code of the attempt."""
    body = {"inventories": inventories, "allocations": allocations}
    response = service.send("POST", "/reshaper", body, headers=ROLE)
    return response.status_code, response.json["errors"][0]["code"] if response.status_code >= 400 else None


def test_what_is_in_use_moves_with_its_inventory(full: Any) -> None:
    """VCPU goes from provider 1 to 2 while all of it is allocated; each provider moves on at every step."""
    inventories = {ONE: stock(2, DISK_GB=10), TWO: stock(0, VCPU=8)}
    allocations = {CONSUMER: claim({ONE: {"DISK_GB": 10}, TWO: {"VCPU": 8}}, 1)}

    assert reshape(full, inventories, allocations) == (204, None)
    usages = [full.get(f"/resource_providers/{provider}/usages") for provider in (ONE, TWO)]
    assert usages == [
        {"resource_provider_generation": 5, "usages": {"DISK_GB": 10}},
        {"resource_provider_generation": 3, "usages": {"VCPU": 8}},
    ]
    assert full.get(f"/allocations/{CONSUMER}")["consumer_generation"] == 2


def test_all_may_go(full: Any) -> None:
    """A provider that is to have nothing, and a consumer that is to have nothing."""
    assert reshape(full, {ONE: stock(2)}, {CONSUMER: claim({}, 1)}) == (204, None)
    assert full.get(f"/resource_providers/{ONE}/inventories") == {"resource_provider_generation": 4, "inventories": {}}


@pytest.mark.parametrize(
    ("inventories", "allocations", "outcome"),
    [
        ({ONE: stock(1, DISK_GB=10)}, {}, (409, "placement.concurrent_update")),
        ({ONE: stock(2, DISK_GB=10)}, {}, (409, "placement.inventory.inuse")),
        ({ONE: stock(2)}, {}, (409, "placement.inventory.inuse")),
        ({TWO: stock(0, VCPU=8)}, {CONSUMER: claim({TWO: {"VCPU": 8}}, 2)}, (409, "placement.concurrent_update")),
        ({TWO: stock(0, VCPU=7)}, {CONSUMER: claim({TWO: {"VCPU": 8}}, 1)}, (409, "placement.undefined_code")),
        ({uuid(9): stock(0)}, {}, (400, "placement.resource_provider.not_found")),
        ({TWO: stock(0)}, {CONSUMER: claim({uuid(9): {"VCPU": 8}}, 1)}, (400, "placement.undefined_code")),
        ({TWO: stock(0, NO=1)}, {}, (400, "placement.undefined_code")),
        ({TWO: {"resource_provider_generation": 0}}, {}, (400, "placement.undefined_code")),
        ({ONE: stock(2, NO=1), TWO: stock(7)}, {}, (409, "placement.concurrent_update")),
        ({TWO: stock(7), uuid(9): stock(0)}, {}, (409, "placement.concurrent_update")),
        ({uuid(9): stock(0), TWO: stock(7)}, {}, (400, "placement.resource_provider.not_found")),
        ({TWO: stock(7)}, {CONSUMER: claim({uuid(9): {"VCPU": 8}}, 1)}, (409, "placement.concurrent_update")),
        ({"two": stock(0)}, {}, (400, "placement.undefined_code")),
        ({}, {}, (400, "placement.undefined_code")),
    ],
)
def test_a_shape_that_cannot_be_changes_nothing(
    full: Any, inventories: Any, allocations: Any, outcome: tuple[int, str]
) -> None:
    """Other generations, what is still in use, what does not fit, what is unknown or malformed.

    Of several faults the first provider that is missing or has another generation goes before all others.
    """
    before = [full.get(f"/resource_providers/{provider}/inventories") for provider in (ONE, TWO)]

    assert reshape(full, inventories, allocations) == outcome
    assert [full.get(f"/resource_providers/{provider}/inventories") for provider in (ONE, TWO)] == before
    assert full.get(f"/allocations/{CONSUMER}")["consumer_generation"] == 1


def test_only_a_service_reshapes(full: Any) -> None:
    """The role admin is not enough, as in Placement."""
    body = {"inventories": {ONE: stock(2)}, "allocations": {}}

    assert full.outcome("POST", "/reshaper", body) == (403, "placement.undefined_code")


@pytest.mark.parametrize(("generation", "status"), [(0, 409), (2, 400)])
@pytest.mark.parametrize("given", [{"total": 8}, {}])
def test_a_name_that_no_class_can_have_is_refused_after_the_generation(
    full: Any, generation: int, status: int, given: dict[str, int]
) -> None:
    """As in PUT of the inventories of one provider."""
    odd = {"resource_provider_generation": generation, "inventories": {"vcpu": given}}

    assert reshape(full, {ONE: odd}, {})[0] == status
    assert set(full.get(f"/resource_providers/{ONE}/inventories")["inventories"]) == {"VCPU", "DISK_GB"}
