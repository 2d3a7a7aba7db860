"""Resource providers and their trees, over HTTP: statuses and codes as Placement's."""

from typing import Any

import pytest
from sqlalchemy import insert, select, update

from placebench.lab.inventory import tables

STOCK = {"total": 8, "reserved": 0, "min_unit": 1, "max_unit": 8, "step_size": 1, "allocation_ratio": 1.0}


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def roots(service: Any) -> dict[str, str]:
    """The number of each provider's root: {"rp1": "1", ...}."""
    found = service.get("/resource_providers")["resource_providers"]
    return {provider["name"]: provider["root_provider_uuid"][-1] for provider in found}


@pytest.fixture
def tree(service: Any) -> Any:
    """Two trees of providers:

    1     4
    └ 2
      └ 3
    """
    service.provider(1)
    service.provider(2, parent_provider_uuid=uuid(1))
    service.provider(3, parent_provider_uuid=uuid(2))
    service.provider(4)
    return service


def test_a_new_provider_is_its_own_root_at_generation_0(service: Any) -> None:
    """POST responds with the document that GET gives, and says where it is."""
    response = service.send("POST", "/resource_providers", {"name": "rp1", "uuid": uuid(1)})

    path = f"/resource_providers/{uuid(1)}"
    rels = ("inventories", "usages", "aggregates", "traits", "allocations")
    assert response.headers["Location"] == f"http://localhost{path}"
    assert response.json == service.get(path)
    assert response.json == {
        "uuid": uuid(1),
        "name": "rp1",
        "generation": 0,
        "parent_provider_uuid": None,
        "root_provider_uuid": uuid(1),
        "links": [{"rel": "self", "href": path}, *({"rel": rel, "href": f"{path}/{rel}"} for rel in rels)],
    }


def test_a_uuid_is_made_or_brought_into_form(service: Any) -> None:
    """Without a uuid one is made; one without dashes or in capitals becomes lower case with dashes."""
    made = service.send("POST", "/resource_providers", {"name": "a"}).json["uuid"]
    given = uuid(7).replace("-", "").upper()

    assert len(made) == 36
    assert service.send("POST", "/resource_providers", {"name": "b", "uuid": given}).json["uuid"] == uuid(7)


def test_a_child_joins_the_tree_of_its_parent(tree: Any) -> None:
    """The root of a grandchild is the root of its tree."""
    child = tree.get(f"/resource_providers/{uuid(3)}")

    assert (child["parent_provider_uuid"], child["root_provider_uuid"]) == (uuid(2), uuid(1))


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"name": "rp1"}, (409, "placement.duplicate_name")),
        ({"name": "new", "uuid": uuid(1)}, (409, "placement.duplicate_name")),
        ({"name": "new", "parent_provider_uuid": uuid(99)}, (400, "placement.undefined_code")),
        ({"name": "new", "uuid": uuid(9), "parent_provider_uuid": uuid(9)}, (400, "placement.undefined_code")),
        ({"name": ""}, (400, "placement.undefined_code")),
        ({"name": "x" * 201}, (400, "placement.undefined_code")),
        ({"name": "nul\0"}, (400, "placement.undefined_code")),
        ({"name": 5}, (400, "placement.undefined_code")),
        ({"name": "new", "uuid": "no uuid"}, (400, "placement.undefined_code")),
        ({"name": "new", "uuid": None}, (400, "placement.undefined_code")),
        ({"name": "new", "generation": 1}, (400, "placement.undefined_code")),
        ({}, (400, "placement.undefined_code")),
        ([], (400, "placement.undefined_code")),
    ],
)
def test_a_provider_that_cannot_be_made(tree: Any, body: Any, outcome: tuple[int, str]) -> None:
    """What is taken is a conflict; what is malformed, or hangs on nobody, a bad request."""
    assert tree.outcome("POST", "/resource_providers", body) == outcome


def test_a_new_name_leaves_place_and_generation(tree: Any) -> None:
    """PUT with a name alone renames."""
    document = tree.send("PUT", f"/resource_providers/{uuid(2)}", {"name": "renamed"}).json

    assert (document["name"], document["generation"], document["parent_provider_uuid"]) == ("renamed", 0, uuid(1))


def test_a_moved_provider_takes_its_subtree_along(tree: Any) -> None:
    """Under another root all below have that root; moved out, the subtree has a root of its own."""
    path = f"/resource_providers/{uuid(2)}"

    assert tree.outcome("PUT", path, {"name": "rp2", "parent_provider_uuid": uuid(4)}) == (200, None)
    assert roots(tree) == {"rp1": "1", "rp2": "4", "rp3": "4", "rp4": "4"}
    assert tree.outcome("PUT", path, {"name": "rp2", "parent_provider_uuid": None}) == (200, None)
    assert roots(tree) == {"rp1": "1", "rp2": "2", "rp3": "2", "rp4": "4"}


@pytest.mark.parametrize(
    ("number", "body", "outcome"),
    [
        (2, {"name": "rp2", "parent_provider_uuid": uuid(2)}, (400, "placement.undefined_code")),
        (2, {"name": "rp2", "parent_provider_uuid": uuid(3)}, (400, "placement.undefined_code")),
        (2, {"name": "rp2", "parent_provider_uuid": uuid(99)}, (400, "placement.undefined_code")),
        (2, {"name": "rp1"}, (409, "placement.duplicate_name")),
        (2, {"name": "rp1", "parent_provider_uuid": uuid(4)}, (409, "placement.duplicate_name")),
        (2, {"name": "rp2", "uuid": uuid(2)}, (400, "placement.undefined_code")),
        (99, {"name": "nobody"}, (404, "placement.undefined_code")),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(
    tree: Any, number: int, body: Any, outcome: tuple[int, str]
) -> None:
    """A loop, a missing parent, a taken name: the trees stay as they are."""
    assert tree.outcome("PUT", f"/resource_providers/{uuid(number)}", body) == outcome
    assert roots(tree) == {"rp1": "1", "rp2": "1", "rp3": "1", "rp4": "4"}


def test_a_provider_goes_with_what_hangs_on_it(service: Any) -> None:
    """DELETE takes inventories, traits and aggregates along, and the name is free again."""
    path = service.provider(1)
    service.send("POST", f"{path}/inventories", {"resource_class": "VCPU", "total": 8})
    service.send("PUT", f"{path}/traits", {"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX"]})
    service.send("PUT", f"{path}/aggregates", {"resource_provider_generation": 2, "aggregates": [uuid(50)]})

    assert service.outcome("DELETE", path) == (204, None)
    assert service.outcome("GET", path) == (404, "placement.undefined_code")
    with service.engine.connect() as connection:
        hanging = (tables.inventories, tables.resource_provider_traits, tables.resource_provider_aggregates)
        assert [connection.execute(select(table)).all() for table in hanging] == [[], [], []]


def test_a_provider_that_something_stands_on_stays(tree: Any) -> None:
    """A parent cannot be deleted, nor a provider with allocations; an unknown one is 404."""
    with tree.engine.begin() as connection:
        row = {"resource_provider_id": 4, "consumer_id": uuid(70), "resource_class_id": 0, "used": 1}
        connection.execute(insert(tables.allocations).values(row))

    parent, used = f"/resource_providers/{uuid(2)}", f"/resource_providers/{uuid(4)}"
    assert tree.outcome("DELETE", parent) == (409, "placement.resource_provider.cannot_delete_parent")
    assert tree.outcome("DELETE", used) == (409, "placement.resource_provider.inuse")
    assert tree.outcome("DELETE", f"/resource_providers/{uuid(99)}") == (404, "placement.undefined_code")


@pytest.fixture
def rootless(tree: Any) -> Any:
    """The same, but for 4, which a Placement of old has left without a root; a consumer has something of it."""
    with tree.engine.begin() as connection:
        connection.execute(insert(tables.inventories).values(resource_provider_id=4, resource_class_id=0, **STOCK))
        who = {"id": 1, "external_id": "somebody"}
        connection.execute(insert(tables.projects).values(who))
        connection.execute(insert(tables.users).values(who))
        consumer = {"uuid": uuid(70), "generation": 1, "project_id": 1, "user_id": 1}
        connection.execute(insert(tables.consumers).values(consumer))
        row = {"resource_provider_id": 4, "consumer_id": uuid(70), "resource_class_id": 0, "used": 1}
        connection.execute(insert(tables.allocations).values(row))
        of_provider = tables.resource_providers.c.uuid == uuid(4)
        connection.execute(update(tables.resource_providers).where(of_provider).values(root_provider_id=None))
    return tree


def claim(generation: int | None, *providers: str) -> dict[str, Any]:
    """One VCPU of each provider."""
    allocations = {provider: {"resources": {"VCPU": 1}} for provider in providers}
    who = {"project_id": "somebody", "user_id": "somebody", "consumer_type": "INSTANCE"}
    return {"allocations": allocations, "consumer_generation": generation, **who}


@pytest.mark.parametrize(
    ("method", "below", "body"),
    [
        ("GET", "", None),
        ("PUT", "", {"name": "rp5"}),
        ("DELETE", "", None),
        ("GET", "/inventories", None),
        ("PUT", "/inventories", {"resource_provider_generation": 0, "inventories": {}}),
        ("DELETE", "/inventories/VCPU", None),
        ("GET", "/traits", None),
        ("PUT", "/traits", {"resource_provider_generation": 0, "traits": []}),
        ("GET", "/aggregates", None),
        ("PUT", "/aggregates", {"resource_provider_generation": 0, "aggregates": []}),
        ("GET", "/usages", None),
        ("GET", "/allocations", None),
    ],
)
def test_a_provider_without_a_root_is_not_found(rootless: Any, method: str, below: str, body: Any) -> None:
    """404 for every call on it, as if there were none."""
    path = f"/resource_providers/{uuid(4)}{below}"

    assert (404, "placement.undefined_code") == rootless.outcome(method, path, body)


def test_a_provider_without_a_root_can_be_named_by_nobody(rootless: Any) -> None:
    """Not as a parent, nor by a claim or the reshaper; but its name and uuid are taken."""
    below, moved = {"name": "rp5", "parent_provider_uuid": uuid(4)}, {"name": "rp1", "parent_provider_uuid": uuid(4)}
    shape = {"inventories": {uuid(4): {"resource_provider_generation": 0, "inventories": {}}}, "allocations": {}}
    refused, taken = (400, "placement.undefined_code"), (409, "placement.duplicate_name")

    assert refused == rootless.outcome("POST", "/resource_providers", below)
    assert refused == rootless.outcome("PUT", f"/resource_providers/{uuid(1)}", moved)
    assert refused == rootless.outcome("PUT", f"/allocations/{uuid(71)}", claim(None, uuid(4)))
    assert refused == rootless.outcome("POST", "/allocations", {uuid(70): claim(1, uuid(1), uuid(4))})
    reshaped = rootless.send("POST", "/reshaper", shape, headers={"X-Roles": "service"})
    assert "placement.resource_provider.not_found" == reshaped.json["errors"][0]["code"]
    assert taken == rootless.outcome("POST", "/resource_providers", {"name": "rp4"})
    assert taken == rootless.outcome("POST", "/resource_providers", {"name": "rp5", "uuid": uuid(4)})


def test_a_provider_without_a_root_is_in_no_list(rootless: Any) -> None:
    """Whatever names it; an in_tree that names it is nobody's, before any other fault."""
    listed = rootless.get("/resource_providers")["resource_providers"]

    assert ["rp1", "rp2", "rp3"] == [provider["name"] for provider in listed]
    for query in (f"uuid={uuid(4)}", "name=rp4", "resources=VCPU:1", f"in_tree={uuid(4)}&required=CUSTOM_NOBODY"):
        assert {"resource_providers": []} == rootless.get(f"/resource_providers?{query}")


def test_what_was_taken_of_a_provider_without_a_root_can_be_given_back(rootless: Any) -> None:
    """The consumer's allocations show it, and go with a claim for nothing."""
    path = f"/allocations/{uuid(70)}"

    assert [uuid(4)] == list(rootless.get(path)["allocations"])
    assert (204, None) == rootless.outcome("POST", "/allocations", {uuid(70): claim(1)})
    assert {"allocations": {}} == rootless.get(path)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["rp1", "rp2", "rp3", "rp4"]),
        ("?name=rp2", ["rp2"]),
        ("?name=rp1&name=rp2", ["rp2"]),
        ("?name=", ["rp1", "rp2", "rp3", "rp4"]),
        (f"?uuid={uuid(4)}", ["rp4"]),
        (f"?in_tree={uuid(3)}", ["rp1", "rp2", "rp3"]),
        (f"?in_tree={uuid(99)}", []),
        (f"?in_tree={uuid(3)}&name=rp4", []),
    ],
)
def test_the_list_is_narrowed_by_every_filter(tree: Any, query: str, names: list[str]) -> None:
    """name, uuid and in_tree must all hold; the last value of each counts."""
    found = tree.get(f"/resource_providers{query}")["resource_providers"]

    assert [provider["name"] for provider in found] == names


def test_unknown_forbidden_traits_are_looked_up_after_the_required_ones(tree: Any) -> None:
    """No provider has a required trait: an empty list, as in Placement; else an unknown name is refused."""
    none, some = "required=HW_CPU_X86_AVX", f"in_tree={uuid(3)}"

    assert {"resource_providers": []} == tree.get(f"/resource_providers?{none}&required=!CUSTOM_NOBODY")
    for query in (f"{some}&required=!CUSTOM_NOBODY", f"{none}&required=CUSTOM_NOBODY"):
        assert (400, "placement.undefined_code") == tree.outcome("GET", f"/resource_providers?{query}", None)


@pytest.mark.parametrize("query", ["?uuid=x", "?in_tree=x", f"?uuid={uuid(1).replace('-', '')}", "?a=b", "?name=%ff"])
def test_a_filter_that_cannot_be_read(service: Any, query: str) -> None:
    """A UUID without its form, an unknown name, or no UTF-8 is a bad request."""
    assert service.outcome("GET", f"/resource_providers{query}") == (400, "placement.undefined_code")
