"""Traits, resource classes and aggregates over HTTP: statuses, codes and generations as Placement's."""

from typing import Any

import pytest
from sqlalchemy import select

from placebench.lab.inventory import tables


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.mark.parametrize("room", ["/traits", "/resource_classes"])
def test_a_name_is_made_once(service: Any, room: str) -> None:
    """The first PUT makes it (201), the second finds it (204); both say where it is."""
    first, second = (service.send("PUT", f"{room}/CUSTOM_GOLD") for _ in range(2))

    assert (first.status_code, second.status_code) == (201, 204)
    assert first.headers["Location"] == second.headers["Location"] == f"http://localhost{room}/CUSTOM_GOLD"


@pytest.mark.parametrize("room", ["/traits", "/resource_classes"])
@pytest.mark.parametrize("name", ["GOLD", "CUSTOM_", "CUSTOM_gold", "CUSTOM_G%20D", "CUSTOM_" + "X" * 249, "%E2%98%83"])
def test_a_user_makes_custom_names_only(service: Any, room: str, name: str) -> None:
    """CUSTOM_ and capitals, digits or underscores, at most 255 characters: else 400."""
    assert service.outcome("PUT", f"{room}/{name}") == (400, "placement.undefined_code")


@pytest.mark.parametrize("room", ["/traits", "/resource_classes"])
def test_names_are_deleted(service: Any, room: str) -> None:
    """A custom name goes once; a standard one stays; an unknown one is 404."""
    service.send("PUT", f"{room}/CUSTOM_GOLD")
    standard = {"/traits": "HW_CPU_X86_AVX", "/resource_classes": "VCPU"}[room]

    assert service.outcome("DELETE", f"{room}/CUSTOM_GOLD") == (204, None)
    assert service.outcome("DELETE", f"{room}/CUSTOM_GOLD") == (404, "placement.undefined_code")
    assert service.outcome("DELETE", f"{room}/{standard}") == (400, "placement.undefined_code")


def test_a_name_in_use_stays(service: Any) -> None:
    """A trait that a provider has and a class that an inventory has are conflicts to delete."""
    path = service.provider(1)
    service.send("PUT", "/traits/CUSTOM_GOLD")
    service.send("PUT", "/resource_classes/CUSTOM_ORE")
    service.send("PUT", f"{path}/traits", {"resource_provider_generation": 0, "traits": ["CUSTOM_GOLD"]})
    service.send("POST", f"{path}/inventories", {"resource_class": "CUSTOM_ORE", "total": 1})

    assert service.outcome("DELETE", "/traits/CUSTOM_GOLD") == (409, "placement.undefined_code")
    assert service.outcome("DELETE", "/resource_classes/CUSTOM_ORE") == (409, "placement.undefined_code")


def test_custom_classes_count_from_10000_and_reuse_the_last_id(service: Any) -> None:
    """The id is the highest one and 1: a deleted last class makes room."""
    for name in ("CUSTOM_A", "CUSTOM_B"):
        service.send("PUT", f"/resource_classes/{name}")
    service.send("DELETE", "/resource_classes/CUSTOM_B")
    service.send("PUT", "/resource_classes/CUSTOM_C")

    with service.engine.connect() as connection:
        own = tables.resource_classes.c
        custom = connection.execute(select(own.id, own.name).where(own.id >= 10_000).order_by(own.id))
        assert [tuple(row) for row in custom] == [(10_000, "CUSTOM_A"), (10_001, "CUSTOM_C")]


def test_classes_are_listed_and_shown(service: Any) -> None:
    """Each with a link to itself."""
    document = {"name": "VCPU", "links": [{"rel": "self", "href": "/resource_classes/VCPU"}]}

    assert service.get("/resource_classes/VCPU") == document
    assert [entry["name"] for entry in service.get("/resource_classes")["resource_classes"]] == [
        "VCPU",
        "MEMORY_MB",
        "DISK_GB",
    ]
    assert service.outcome("GET", "/resource_classes/NO") == (404, "placement.undefined_code")


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"name": "CUSTOM_NEW"}, (201, None)),
        ({"name": "CUSTOM_OLD"}, (409, "placement.undefined_code")),
        ({"name": "VCPU"}, (400, "placement.undefined_code")),
        ({"name": 5}, (400, "placement.undefined_code")),
        ({}, (400, "placement.undefined_code")),
        ({"name": "CUSTOM_NEW", "id": 5}, (400, "placement.undefined_code")),
    ],
)
def test_a_class_is_posted(service: Any, body: Any, outcome: tuple[int, str | None]) -> None:
    """POST makes a new one and nothing else."""
    service.send("PUT", "/resource_classes/CUSTOM_OLD")

    assert service.outcome("POST", "/resource_classes", body) == outcome


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX"]),
        ("?name=in:CUSTOM_A,NO", ["CUSTOM_A"]),
        ("?name=startswith:CUSTOM_", ["CUSTOM_A", "CUSTOM_B"]),
        ("?name=startswith:CUSTOM%25", []),
        ("?name=like:CUSTOM_", ["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX"]),
        ("?associated=true", ["CUSTOM_B"]),
        ("?associated=False", ["CUSTOM_A", "HW_CPU_X86_AVX"]),
        ("?associated=true&name=in:CUSTOM_A", []),
    ],
)
def test_traits_are_listed(service: Any, query: str, names: list[str]) -> None:
    """All, by name, by prefix, and by whether some provider has them."""
    for name in ("CUSTOM_A", "CUSTOM_B"):
        service.send("PUT", f"/traits/{name}")
    body = {"resource_provider_generation": 0, "traits": ["CUSTOM_B"]}
    service.send("PUT", f"{service.provider(1)}/traits", body)

    assert service.get(f"/traits{query}") == {"traits": names}


@pytest.mark.parametrize("query", ["?name=CUSTOM_A", "?associated=perhaps", "?colour=red", "?name=in:%00"])
def test_a_list_of_traits_that_cannot_be_read(service: Any, query: str) -> None:
    """A filter without its form is a bad request."""
    assert service.outcome("GET", f"/traits{query}") == (400, "placement.undefined_code")


def test_a_provider_gets_traits_and_moves_on_only_by_a_change(service: Any) -> None:
    """PUT sets just these; the same again leaves the generation; DELETE takes all."""
    path = f"{service.provider(1)}/traits"
    service.send("PUT", "/traits/CUSTOM_A")
    names = ["CUSTOM_A", "HW_CPU_X86_AVX"]

    first = service.send("PUT", path, {"resource_provider_generation": 0, "traits": [*names, *names]})
    again = service.send("PUT", path, {"resource_provider_generation": 1, "traits": names})
    assert first.json == again.json == {"resource_provider_generation": 1, "traits": names}
    assert service.outcome("DELETE", path) == (204, None)
    assert service.outcome("DELETE", path) == (204, None)
    assert service.get(path) == {"resource_provider_generation": 2, "traits": []}


def test_a_provider_gets_aggregates_and_moves_on_always(service: Any) -> None:
    """PUT sets just these; the same again moves the generation too."""
    path = f"{service.provider(1)}/aggregates"
    body = {"aggregates": [uuid(50), uuid(51)]}

    first = service.send("PUT", path, {"resource_provider_generation": 0, **body})
    again = service.send("PUT", path, {"resource_provider_generation": 1, **body})
    assert (first.json, again.json) == (
        {"resource_provider_generation": 1, **body},
        {"resource_provider_generation": 2, **body},
    )
    last = service.send("PUT", path, {"resource_provider_generation": 2, "aggregates": [uuid(51)]})
    assert service.get(path) == last.json == {"resource_provider_generation": 3, "aggregates": [uuid(51)]}


@pytest.mark.parametrize(
    ("what", "value", "outcome"),
    [
        ("traits", {"resource_provider_generation": 1, "traits": []}, (409, "placement.concurrent_update")),
        ("traits", {"resource_provider_generation": 0, "traits": ["NO"]}, (400, "placement.undefined_code")),
        ("traits", {"resource_provider_generation": 0, "traits": [""]}, (400, "placement.undefined_code")),
        ("traits", {"resource_provider_generation": 0, "traits": "NO"}, (400, "placement.undefined_code")),
        ("traits", {"traits": []}, (400, "placement.undefined_code")),
        ("aggregates", {"resource_provider_generation": 1, "aggregates": []}, (409, "placement.concurrent_update")),
        ("aggregates", {"resource_provider_generation": 0, "aggregates": ["x"]}, (400, "placement.undefined_code")),
        (
            "aggregates",
            {"resource_provider_generation": 0, "aggregates": [uuid(1), uuid(1)]},
            (400, "placement.undefined_code"),
        ),
        (
            "aggregates",
            {"resource_provider_generation": 0, "aggregates": [f"urn:uuid:{uuid(1)}"]},
            (400, "placement.undefined_code"),
        ),
        ("aggregates", [uuid(1)], (400, "placement.undefined_code")),
    ],
)
def test_traits_and_aggregates_that_cannot_be_set(
    service: Any, what: str, value: Any, outcome: tuple[int, str]
) -> None:
    """An old generation is a conflict; unknown traits and what is no UUID are bad requests; nothing changes."""
    path = f"{service.provider(1)}/{what}"

    assert service.outcome("PUT", path, value) == outcome
    assert service.get(path) == {"resource_provider_generation": 0, what: []}


@pytest.mark.parametrize("what", ["traits", "aggregates"])
def test_nobody_has_traits_and_aggregates(service: Any, what: str) -> None:
    """An unknown provider in the path is 404."""
    path = f"/resource_providers/nobody/{what}"

    assert service.outcome("GET", path) == (404, "placement.undefined_code")
    body = {"resource_provider_generation": 0, what: []}
    assert service.outcome("PUT", path, body) == (404, "placement.undefined_code")
