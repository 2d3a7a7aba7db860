"""Allocations and usages over HTTP: what fits, generations of consumers and providers, statuses and codes."""

from typing import Any

import pytest
from sqlalchemy import select

from placebench.lab.inventory import tables


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


ONE, TWO = uuid(1), uuid(2)
MINE, YOURS = uuid(101), uuid(102)
CONFLICT = (409, "placement.undefined_code")
CHANGED = (409, "placement.concurrent_update")
BAD = (400, "placement.undefined_code")


def claim(allocations: Any, generation: int | None = None, **more: Any) -> dict[str, Any]:
    """The body that gives a consumer these amounts by class by provider."""
    return {
        "allocations": {provider: {"resources": resources} for provider, resources in allocations.items()},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
        **more,
    }


@pytest.fixture
def stock(service: Any) -> Any:
    """Provider 1 has 8 VCPU in steps of 2 up to 6, and room for 15 DISK_GB; provider 2 has 1 VCPU. Both at 1."""
    vcpu = {"total": 8, "min_unit": 2, "max_unit": 6, "step_size": 2}
    disk = {"total": 12, "reserved": 2, "allocation_ratio": 1.5}
    for number, inventories in ((1, {"VCPU": vcpu, "DISK_GB": disk}), (2, {"VCPU": {"total": 1}})):
        body = {"resource_provider_generation": 0, "inventories": inventories}
        service.send("PUT", f"{service.provider(number)}/inventories", body)
    return service


def generations(service: Any) -> tuple[int, int]:
    """Those of the two providers."""
    first, second = (service.get(f"/resource_providers/{uuid}")["generation"] for uuid in (ONE, TWO))
    return first, second


def test_a_consumer_gets_what_it_claims(stock: Any) -> None:
    """The document of the consumer has amounts, generations, and to whom it belongs; providers moved on."""
    body = claim({ONE: {"VCPU": 2, "DISK_GB": 15}, TWO: {"VCPU": 1}}, mappings={"": [ONE], "_B": [TWO]})

    assert stock.outcome("PUT", f"/allocations/{MINE}", body) == (204, None)
    assert stock.get(f"/allocations/{MINE}") == {
        "allocations": {
            ONE: {"generation": 2, "resources": {"VCPU": 2, "DISK_GB": 15}},
            TWO: {"generation": 2, "resources": {"VCPU": 1}},
        },
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": 1,
        "consumer_type": "INSTANCE",
    }


def test_a_claim_replaces_all_that_was_there(stock: Any) -> None:
    """What is not claimed again is free; only named providers move on; owner and type follow the claim."""
    stock.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 2}}))
    body = claim({TWO: {"VCPU": 1}}, 1, user_id="other", consumer_type="MIGRATION")

    assert stock.outcome("PUT", f"/allocations/{MINE}", body) == (204, None)
    document = stock.get(f"/allocations/{MINE}")
    assert list(document["allocations"]) == [TWO]
    assert (document["user_id"], document["consumer_type"]) == ("other", "MIGRATION")
    assert document["consumer_generation"] == 2
    assert generations(stock) == (2, 2)


def test_a_consumer_with_nothing_is_forgotten(stock: Any) -> None:
    """Claiming nothing, or DELETE, leaves no consumer: the next claim is a new consumer's."""
    path = f"/allocations/{MINE}"
    stock.send("PUT", path, claim({ONE: {"VCPU": 2}}))

    assert stock.outcome("PUT", path, claim({}, 1)) == (204, None)
    assert stock.get(path) == {"allocations": {}}
    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 2}})) == (204, None)
    assert stock.outcome("DELETE", path) == (204, None)
    assert stock.outcome("DELETE", path) == (404, "placement.undefined_code")
    assert generations(stock) == (4, 1)
    with stock.engine.connect() as connection:
        assert connection.execute(select(tables.consumers)).all() == []


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (claim({ONE: {"VCPU": 1}}), CONFLICT),
        (claim({ONE: {"VCPU": 3}}), CONFLICT),
        (claim({ONE: {"VCPU": 8}}), CONFLICT),
        (claim({ONE: {"DISK_GB": 16}}), CONFLICT),
        (claim({ONE: {"DISK_GB": 10**30}}), CONFLICT),
        (claim({ONE: {"MEMORY_MB": 1}}), CONFLICT),
        (claim({TWO: {"VCPU": 1}}, 0), CHANGED),
        (claim({uuid(99): {"VCPU": 1}}), BAD),
        (claim({ONE: {"NO": 1}}), BAD),
        (claim({ONE: {"VCPU": 0}}), BAD),
        (claim({ONE: {"VCPU": True}}), BAD),
        (claim({ONE: {}}), BAD),
        (claim({"one": {"VCPU": 2}}), BAD),
        (claim({ONE: {"VCPU": 2}}, "0"), BAD),
        (claim({ONE: {"VCPU": 2}}, project_id=""), BAD),
        (claim({ONE: {"VCPU": 2}}, consumer_type="instance"), BAD),
        (claim({ONE: {"VCPU": 2}}, mappings={}), BAD),
        (claim({ONE: {"VCPU": 2}}, colour="red"), BAD),
        ({"allocations": {}}, BAD),
    ],
)
def test_a_claim_that_does_not_fit_leaves_nothing_behind(stock: Any, body: Any, outcome: tuple[int, str]) -> None:
    """No allocation and no consumer: the next valid claim of the same consumer succeeds (Placement's defect D12)."""
    path = f"/allocations/{MINE}"

    assert stock.outcome("PUT", path, body) == outcome
    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 2}})) == (204, None)


@pytest.mark.parametrize("generation", [None, 0, 2])
def test_another_generation_of_the_consumer_is_a_conflict(stock: Any, generation: int | None) -> None:
    """The consumer is at 1 after its first claim."""
    stock.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 2}}))

    assert stock.outcome("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 4}}, generation)) == CHANGED


def test_the_path_names_a_consumer_in_any_form_of_uuid(stock: Any) -> None:
    """Without dashes and in capitals is the same consumer; what is no UUID is a bad request."""
    path = f"/allocations/{MINE.replace('-', '').upper()}"

    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 2}})) == (204, None)
    assert stock.get(f"/allocations/{MINE}")["consumer_generation"] == 1
    assert stock.outcome("PUT", "/allocations/me", claim({ONE: {"VCPU": 2}})) == BAD


def test_what_others_have_is_not_given_twice(stock: Any) -> None:
    """6 of 8 are taken: 2 more fit, then none; one's own may be claimed anew."""
    stock.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 6}}))

    assert stock.outcome("PUT", f"/allocations/{YOURS}", claim({ONE: {"VCPU": 4}})) == CONFLICT
    assert stock.outcome("PUT", f"/allocations/{YOURS}", claim({ONE: {"VCPU": 2}})) == (204, None)
    assert stock.outcome("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 6}}, 1)) == (204, None)


def test_over_capacity_may_be_kept_or_reduced(stock: Any) -> None:
    """An inventory that shrank below its use: no more of it, but as much as before or less."""
    stock.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 6}}))
    body = {"resource_provider_generation": 2, "total": 2}
    stock.send("PUT", f"/resource_providers/{ONE}/inventories/VCPU", body)

    path = f"/allocations/{MINE}"
    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 7}}, 1)) == CONFLICT
    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 6}}, 1)) == (204, None)
    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 5}}, 2)) == (204, None)
    assert stock.outcome("PUT", path, claim({ONE: {"VCPU": 6}}, 3)) == CONFLICT
    assert stock.outcome("PUT", f"/allocations/{YOURS}", claim({ONE: {"VCPU": 1}})) == CONFLICT


def test_several_consumers_change_together(stock: Any) -> None:
    """One gives up what another one takes, in one request."""
    stock.send("PUT", f"/allocations/{MINE}", claim({TWO: {"VCPU": 1}}))

    assert stock.outcome("POST", "/allocations", {YOURS: claim({TWO: {"VCPU": 1}})}) == CONFLICT
    moved = {MINE: claim({}, 1), YOURS: claim({TWO: {"VCPU": 1}})}
    assert stock.outcome("POST", "/allocations", moved) == (204, None)
    assert stock.get(f"/allocations/{MINE}") == {"allocations": {}}
    assert list(stock.get(f"/allocations/{YOURS}")["allocations"]) == [TWO]


def test_several_consumers_change_or_none(stock: Any) -> None:
    """Each fits alone, both do not: neither has anything afterwards."""
    both = {MINE: claim({ONE: {"VCPU": 4}, TWO: {"VCPU": 1}}), YOURS: claim({ONE: {"VCPU": 6}})}

    assert stock.outcome("POST", "/allocations", both) == CONFLICT
    assert stock.get(f"/allocations/{MINE}") == stock.get(f"/allocations/{YOURS}") == {"allocations": {}}
    assert stock.outcome("POST", "/allocations", {}) == BAD
    assert stock.outcome("POST", "/allocations", {"me": claim({ONE: {"VCPU": 2}})}) == BAD


def test_a_provider_shows_who_has_what_of_it(stock: Any) -> None:
    """By consumer, with the consumer's generation; and the sums by class, unused ones too."""
    stock.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 2}}))
    stock.send("PUT", f"/allocations/{YOURS}", claim({ONE: {"VCPU": 4}}))

    assert stock.get(f"/resource_providers/{ONE}/allocations") == {
        "allocations": {
            MINE: {"consumer_generation": 1, "resources": {"VCPU": 2}},
            YOURS: {"consumer_generation": 1, "resources": {"VCPU": 4}},
        },
        "resource_provider_generation": 3,
    }
    assert stock.get(f"/resource_providers/{ONE}/usages") == {
        "usages": {"VCPU": 6, "DISK_GB": 0},
        "resource_provider_generation": 3,
    }
    assert stock.outcome("GET", "/resource_providers/nobody/allocations") == (404, "placement.undefined_code")
    assert stock.outcome("GET", "/resource_providers/nobody/usages") == (404, "placement.undefined_code")


@pytest.mark.parametrize(
    ("query", "usages"),
    [
        (
            "?project_id=project",
            {
                "INSTANCE": {"consumer_count": 1, "VCPU": 2, "DISK_GB": 1},
                "MIGRATION": {"consumer_count": 2, "VCPU": 2, "DISK_GB": 2},
            },
        ),
        ("?project_id=project&consumer_type=all", {"all": {"consumer_count": 3, "VCPU": 4, "DISK_GB": 3}}),
        ("?project_id=project&consumer_type=INSTANCE", {"INSTANCE": {"consumer_count": 1, "VCPU": 2, "DISK_GB": 1}}),
        ("?project_id=project&consumer_type=unknown", {}),
        ("?project_id=project&user_id=other", {"MIGRATION": {"consumer_count": 1, "DISK_GB": 2}}),
        ("?project_id=project&user_id=other&consumer_type=all", {"all": {"consumer_count": 1, "DISK_GB": 2}}),
        ("?project_id=nobody", {}),
    ],
)
def test_a_project_sees_what_it_uses_by_type(stock: Any, query: str, usages: Any) -> None:
    """Sums by class, and consumers counted once (Placement's defect D2 is that PostgreSQL refuses its query)."""
    stock.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 2, "DISK_GB": 1}}))
    stock.send("PUT", f"/allocations/{YOURS}", claim({ONE: {"VCPU": 2}}, consumer_type="MIGRATION"))
    body = claim({ONE: {"DISK_GB": 2}}, consumer_type="MIGRATION", user_id="other")
    stock.send("PUT", f"/allocations/{uuid(103)}", body)

    assert stock.get(f"/usages{query}") == {"usages": usages}


@pytest.mark.parametrize(
    "query", ["", "?user_id=user", "?project_id=", "?project_id=p&consumer_type=instance", "?project_id=p&colour=red"]
)
def test_usages_that_cannot_be_asked_for(service: Any, query: str) -> None:
    """A project is needed, types are capitals, other parameters unknown."""
    assert service.outcome("GET", f"/usages{query}") == BAD


def test_a_conflict_says_what_nova_looks_for(service: Any) -> None:
    """nova tells by a phrase whether the consumer, not a provider, was changed, and whether a name is taken."""
    service.provider(1)
    changed = service.send("PUT", f"/allocations/{MINE}", claim({ONE: {"VCPU": 1}}, generation=3))
    name, same = (service.send("POST", "/resource_providers", {"name": "rp1", "uuid": taken}) for taken in (TWO, ONE))

    details = [response.json["errors"][0]["detail"] for response in (changed, name, same)]
    assert "consumer generation conflict" in details[0]
    assert ["Conflicting resource provider name:" in detail for detail in details] == [False, True, False]
