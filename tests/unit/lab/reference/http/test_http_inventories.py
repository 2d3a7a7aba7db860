"""Inventories over HTTP: generations, defaults, limits, statuses and codes as Placement's."""

from typing import Any

import pytest
from sqlalchemy import insert

from placebench.lab.inventory import tables

CONSUMER = "00000000-0000-4000-8000-000000000070"
EIGHT = {
    "total": 8,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 2147483647,
    "step_size": 1,
    "allocation_ratio": 1.0,
}


@pytest.fixture
def path(service: Any) -> str:
    """A provider with 8 VCPU, at generation 1."""
    provider = service.provider(1)
    service.send("POST", f"{provider}/inventories", {"resource_class": "VCPU", "total": 8})
    return f"{provider}/inventories"


def allocate(service: Any) -> None:
    """One VCPU of the provider goes to a consumer."""
    with service.engine.begin() as connection:
        row = {"resource_provider_id": 1, "consumer_id": CONSUMER, "resource_class_id": 0, "used": 1}
        connection.execute(insert(tables.allocations).values(row))


def test_an_inventory_gets_defaults_and_moves_the_generation(service: Any) -> None:
    """POST responds 201 with the whole inventory and where it is."""
    provider = service.provider(1)
    response = service.send("POST", f"{provider}/inventories", {"resource_class": "VCPU", "total": 8})

    assert (response.status_code, response.headers["Location"]) == (201, f"http://localhost{provider}/inventories/VCPU")
    assert response.json == {"resource_provider_generation": 1, **EIGHT}


def test_inventories_are_read_alone_and_together(service: Any, path: str) -> None:
    """Both documents bear the provider's generation."""
    assert service.get(f"{path}/VCPU") == {"resource_provider_generation": 1, **EIGHT}
    assert service.get(path) == {"resource_provider_generation": 1, "inventories": {"VCPU": EIGHT}}


def test_all_inventories_are_replaced_at_once(service: Any, path: str) -> None:
    """PUT drops, changes and adds; the generation moves on, even if nothing changed."""
    wanted = {"MEMORY_MB": EIGHT | {"total": 1024}, "DISK_GB": EIGHT}
    first = service.send("PUT", path, {"resource_provider_generation": 1, "inventories": wanted})
    second = service.send("PUT", path, {"resource_provider_generation": 2, "inventories": wanted})

    assert first.json == {"resource_provider_generation": 2, "inventories": wanted}
    assert second.json == {"resource_provider_generation": 3, "inventories": wanted}
    assert service.get(path) == second.json


def test_one_inventory_is_changed(service: Any, path: str) -> None:
    """PUT of one class leaves no old field behind."""
    body = {"resource_provider_generation": 1, "total": 16, "reserved": 2}

    assert service.send("PUT", f"{path}/VCPU", body).json == EIGHT | {
        "resource_provider_generation": 2,
        "total": 16,
        "reserved": 2,
    }


def test_inventories_are_deleted(service: Any, path: str) -> None:
    """One class, or all of them: 204, and the generation moves on."""
    assert service.outcome("DELETE", f"{path}/VCPU") == (204, None)
    assert service.outcome("DELETE", path) == (204, None)
    assert service.get(path) == {"resource_provider_generation": 3, "inventories": {}}


@pytest.mark.parametrize(
    ("method", "below", "body", "outcome"),
    [
        ("PUT", "", {"resource_provider_generation": 0, "inventories": {}}, (409, "placement.concurrent_update")),
        ("PUT", "", {"resource_provider_generation": 10**30, "inventories": {}}, (409, "placement.concurrent_update")),
        ("PUT", "/VCPU", {"resource_provider_generation": 0, "total": 1}, (409, "placement.concurrent_update")),
        ("POST", "", {"resource_class": "VCPU", "total": 1}, (409, "placement.concurrent_update")),
        (
            "PUT",
            "",
            {"resource_provider_generation": 1, "inventories": {"NO": EIGHT}},
            (400, "placement.undefined_code"),
        ),
        ("PUT", "", {"inventories": {}}, (400, "placement.undefined_code")),
        ("PUT", "", {"resource_provider_generation": True, "inventories": {}}, (400, "placement.undefined_code")),
        ("POST", "", {"resource_class": "NO", "total": 1}, (400, "placement.undefined_code")),
        ("PUT", "/DISK_GB", {"resource_provider_generation": 1, "total": 1}, (400, "placement.undefined_code")),
        ("PUT", "/NO", {"resource_provider_generation": 1, "total": 1}, (404, "placement.undefined_code")),
        ("GET", "/DISK_GB", None, (404, "placement.undefined_code")),
        ("DELETE", "/DISK_GB", None, (404, "placement.undefined_code")),
        ("DELETE", "/NO", None, (404, "placement.undefined_code")),
    ],
)
def test_a_change_that_cannot_be_made(
    service: Any, path: str, method: str, below: str, body: Any, outcome: tuple[int, str]
) -> None:
    """An old generation is a conflict, an unknown class in a body a bad request, in a path not found."""
    assert service.outcome(method, f"{path}{below}", body) == outcome
    assert service.get(path) == {"resource_provider_generation": 1, "inventories": {"VCPU": EIGHT}}


@pytest.mark.parametrize(
    ("inventory", "status"),
    [
        ({"total": 1}, 200),
        ({"total": 2147483647}, 200),
        ({"total": 10.0}, 200),
        ({"total": 5, "reserved": 5}, 200),
        ({"total": 5, "allocation_ratio": 0}, 200),
        ({"total": 5, "allocation_ratio": 3.4e38}, 200),
        ({"total": 2, "reserved": 3, "allocation_ratio": 0.3}, 200),
        ({"total": 0}, 400),
        ({"total": 2147483648}, 400),
        ({"total": True}, 400),
        ({"total": "1"}, 400),
        ({"total": 1.5}, 400),
        ({"total": 10**400}, 400),
        ({}, 400),
        ({"total": 5, "reserved": 6}, 400),
        ({"total": 5, "reserved": -1}, 400),
        ({"total": 5, "min_unit": 0}, 400),
        ({"total": 5, "max_unit": 0}, 400),
        ({"total": 5, "step_size": 0}, 400),
        ({"total": 5, "allocation_ratio": -1}, 400),
        ({"total": 5, "allocation_ratio": 1e39}, 400),
        ({"total": 5, "allocation_ratio": None}, 400),
        ({"total": 5, "colour": "red"}, 400),
    ],
)
def test_the_limits_of_an_inventory(service: Any, path: str, inventory: Any, status: int) -> None:
    """Totals from 1 to 2^31-1, no negative capacity (its fraction cut off), no other keys."""
    body = {"resource_provider_generation": 1, "inventories": {"VCPU": inventory}}

    assert service.send("PUT", path, body).status_code == status


def test_an_inventory_with_allocations_stays(service: Any, path: str) -> None:
    """Placement's code differs between one class and all of them."""
    allocate(service)

    nothing = {"resource_provider_generation": 1, "inventories": {}}
    assert service.outcome("PUT", path, nothing) == (409, "placement.inventory.inuse")
    assert service.outcome("DELETE", path) == (409, "placement.inventory.inuse")
    assert service.outcome("DELETE", f"{path}/VCPU") == (409, "placement.concurrent_update")


def test_an_inventory_may_shrink_below_its_allocations(service: Any, path: str) -> None:
    """A total less than what is used is accepted, as in Placement."""
    allocate(service)

    body = {"resource_provider_generation": 1, "total": 1, "reserved": 1}
    assert service.outcome("PUT", f"{path}/VCPU", body) == (200, None)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_the_inventories_of_nobody(service: Any, method: str) -> None:
    """An unknown provider in the path is 404."""
    body = {
        "GET": None,
        "DELETE": None,
        "PUT": {"resource_provider_generation": 0, "inventories": {}},
        "POST": {"resource_class": "VCPU", "total": 1},
    }

    outcome = service.outcome(method, "/resource_providers/nobody/inventories", body[method])
    assert outcome == (404, "placement.undefined_code")


@pytest.mark.parametrize(("generation", "status"), [(0, 409), (1, 400)])
@pytest.mark.parametrize("given", [{"total": 8}, {}])
def test_a_name_that_no_class_can_have_is_refused_after_the_generation(
    service: Any, path: str, generation: int, status: int, given: dict[str, int]
) -> None:
    """Placement's schema does not look at an inventory of such a name, whatever is in it."""
    body = {"resource_provider_generation": generation, "inventories": {"vcpu": given}}

    assert service.send("PUT", path, body).status_code == status
    assert service.get(path)["inventories"] == {"VCPU": EIGHT}
