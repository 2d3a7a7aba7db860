"""Microversions before 1.39: what clients that ask for one get, as Placement's version history has it."""

from typing import Any

import pytest

ROOT, CHILD = (f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2))
CONSUMER = "00000000-0000-4000-8000-000000000009"
NOBODY = "00000000-0000-0000-0000-000000000000"


def ask(service: Any, minor: int, method: str, path: str, body: Any = None) -> Any:
    """The response in microversion 1.minor."""
    return service.send(method, path, body, headers={"OpenStack-API-Version": f"placement 1.{minor}"})


@pytest.fixture
def tree(service: Any) -> Any:
    """root: 8 VCPU, 100 DISK_GB; its child: 8 VCPU, 1000 MEMORY_MB."""
    root, child = service.provider(1), service.provider(2, parent_provider_uuid=ROOT)
    for path, stock in ((root, {"VCPU": 8, "DISK_GB": 100}), (child, {"VCPU": 8, "MEMORY_MB": 1000})):
        inventories = {name: {"total": total} for name, total in stock.items()}
        service.send("PUT", f"{path}/inventories", {"resource_provider_generation": 0, "inventories": inventories})
    return service


@pytest.mark.parametrize(
    ("minor", "links", "in_tree"),
    [
        (0, ["self", "inventories", "usages"], False),
        (5, ["self", "inventories", "usages", "aggregates"], False),
        (13, ["self", "inventories", "usages", "aggregates", "traits", "allocations"], False),
        (14, ["self", "inventories", "usages", "aggregates", "traits", "allocations"], True),
    ],
)
def test_a_provider_shows_what_the_version_knows(service: Any, minor: int, links: list[str], in_tree: bool) -> None:
    """Links come with what they lead to, parent and root in 1.14."""
    service.provider(1)

    document = ask(service, minor, "GET", f"/resource_providers/{ROOT}").json

    assert [link["rel"] for link in document["links"]] == links
    assert ("root_provider_uuid" in document, "parent_provider_uuid" in document) == (in_tree, in_tree)


def test_a_new_provider_is_returned_since_1_20(service: Any) -> None:
    """Before it is a 201 with its address alone."""
    old = ask(service, 19, "POST", "/resource_providers", {"name": "old", "uuid": ROOT})
    new = ask(service, 20, "POST", "/resource_providers", {"name": "new", "uuid": CHILD})

    assert (old.status_code, old.data, old.headers["Location"]) == (
        201,
        b"",
        f"http://localhost/resource_providers/{ROOT}",
    )
    assert (new.status_code, new.json["uuid"]) == (200, CHILD)


@pytest.mark.parametrize(
    ("minor", "parent", "status"), [(13, ROOT, 400), (36, None, 400), (36, ROOT, 200), (37, None, 200)]
)
def test_a_child_can_be_moved_since_1_37(tree: Any, minor: int, parent: str | None, status: int) -> None:
    """Parents can be given since 1.14 and changed since 1.37; the same parent again is no change."""
    body = {"name": "rp2", "parent_provider_uuid": parent}

    assert ask(tree, minor, "PUT", f"/resource_providers/{CHILD}", body).status_code == status


def test_aggregates_have_no_generation_before_1_19(service: Any) -> None:
    """The body is the array, and the provider's generation stays."""
    service.provider(1)
    path = f"/resource_providers/{ROOT}/aggregates"

    response = ask(service, 18, "PUT", path, [CHILD])

    assert (response.status_code, response.json) == (200, {"aggregates": [CHILD]})
    assert service.get(path) == {"aggregates": [CHILD], "resource_provider_generation": 0}


@pytest.mark.parametrize(
    ("minor", "method", "path", "status"),
    [
        (0, "GET", "/traits", 404),
        (0, "PUT", "/traits", 405),
        (5, "GET", "/traits", 404),
        (6, "GET", "/traits", 200),
        (4, "DELETE", f"/resource_providers/{ROOT}/inventories", 405),
        (5, "DELETE", f"/resource_providers/{ROOT}/inventories", 204),
        (8, "GET", "/usages?project_id=blue", 404),
        (37, "GET", "/usages?project_id=blue&consumer_type=all", 400),
        (17, "GET", "/resource_providers?required=HW_CPU_X86_AVX", 400),
        (18, "GET", "/resource_providers?required=HW_CPU_X86_AVX", 200),
        (21, "GET", "/resource_providers?required=!HW_CPU_X86_AVX", 400),
        (22, "GET", "/resource_providers?required=!HW_CPU_X86_AVX", 200),
        (23, "GET", f"/resource_providers?member_of={ROOT}&member_of={ROOT}", 400),
        (24, "GET", f"/resource_providers?member_of={ROOT}&member_of={ROOT}", 200),
        (31, "GET", f"/resource_providers?member_of=!{ROOT}", 400),
        (32, "GET", f"/resource_providers?member_of=!{ROOT}", 200),
        (38, "GET", "/resource_providers?required=in:HW_CPU_X86_AVX", 400),
        (15, "GET", "/allocation_candidates?resources=VCPU:1&limit=1", 400),
        (16, "GET", "/allocation_candidates?resources=VCPU:1&limit=1", 200),
        (24, "GET", "/allocation_candidates?resources1=VCPU:1", 400),
        (25, "GET", "/allocation_candidates?resources1=VCPU:1", 200),
        (32, "GET", "/allocation_candidates?resources_A=VCPU:1", 400),
        (33, "GET", "/allocation_candidates?resources_A=VCPU:1", 200),
        (34, "GET", "/allocation_candidates?resources=VCPU:1&root_required=HW_CPU_X86_AVX", 400),
        (35, "GET", "/allocation_candidates?resources=VCPU:1&root_required=HW_CPU_X86_AVX", 200),
        (36, "GET", "/allocation_candidates?resources=VCPU:1&required=!HW_CPU_X86_AVX&member_of=!" + ROOT, 200),
    ],
)
def test_what_a_version_does_not_have_is_refused(tree: Any, minor: int, method: str, path: str, status: int) -> None:
    """404 for a path, 405 for a method, 400 for a parameter that came later."""
    assert ask(tree, minor, method, path).status_code == status


def test_the_last_required_counts_before_1_39(tree: Any) -> None:
    """Repeated, it is an error of nobody: the ones before are not read."""
    path = "/allocation_candidates?resources=VCPU:1&required=NO_SUCH_TRAIT&required=!HW_CPU_X86_AVX"

    assert (ask(tree, 38, "GET", path).status_code, ask(tree, 39, "GET", path).status_code) == (200, 400)


def test_an_inventory_may_be_reserved_whole_since_1_26(service: Any) -> None:
    """Before, its capacity must be at least 1."""
    service.provider(1)
    body = {"total": 4, "reserved": 4, "resource_class": "VCPU"}

    statuses = [
        ask(service, minor, "POST", f"/resource_providers/{ROOT}/inventories", body).status_code for minor in (25, 26)
    ]

    assert statuses == [400, 201]


def test_a_class_is_renamed_by_put_before_1_7(service: Any) -> None:
    """PUT with a body gives it another name; since 1.7 PUT makes the class and has no body."""
    service.send("PUT", "/resource_classes/CUSTOM_A")
    service.send("PUT", "/resource_classes/CUSTOM_B")

    renamed = ask(service, 6, "PUT", "/resource_classes/CUSTOM_A", {"name": "CUSTOM_C"})
    taken = ask(service, 6, "PUT", "/resource_classes/CUSTOM_B", {"name": "CUSTOM_C"})
    standard = ask(service, 6, "PUT", "/resource_classes/VCPU", {"name": "CUSTOM_D"})

    assert (renamed.status_code, renamed.json["name"]) == (200, "CUSTOM_C")
    assert (taken.status_code, standard.status_code) == (409, 400)
    assert service.send("GET", "/resource_classes/CUSTOM_A").status_code == 404


def test_errors_have_codes_since_1_23_and_documents_dates_since_1_15(service: Any) -> None:
    """Before, neither is in the response."""
    errors = [ask(service, minor, "GET", "/traits/NONE").json["errors"][0] for minor in (22, 23)]
    dated = [ask(service, minor, "GET", "/traits").headers for minor in (14, 15)]

    assert ["code" in error for error in errors] == [False, True]
    assert [("Last-Modified" in headers, headers.get("Cache-Control")) for headers in dated] == [
        (False, None),
        (True, "no-cache"),
    ]


def test_a_trait_has_a_date_without_a_document(service: Any) -> None:
    """GET (204), PUT of a new one (201) and of an old one (204); an error and DELETE have none."""
    new, old = (service.send("PUT", "/traits/CUSTOM_A") for _ in range(2))
    responses = [new, old, service.send("GET", "/traits/CUSTOM_A")]
    responses += [service.send("GET", "/traits/CUSTOM_B"), service.send("DELETE", "/traits/CUSTOM_A")]

    assert [(response.status_code, "Last-Modified" in response.headers) for response in responses] == [
        (201, True),
        (204, True),
        (204, True),
        (404, False),
        (204, False),
    ]


BY_PROVIDER = {ROOT: {"resources": {"VCPU": 2}}}
LISTED = [{"resource_provider": {"uuid": ROOT}, "resources": {"VCPU": 2}}]
OWNERS = {"project_id": "blue", "user_id": "ann"}


@pytest.mark.parametrize(
    ("minor", "body"),
    [
        (0, {"allocations": LISTED}),
        (8, {"allocations": LISTED, **OWNERS}),
        (12, {"allocations": BY_PROVIDER, **OWNERS}),
        (28, {"allocations": BY_PROVIDER, **OWNERS, "consumer_generation": None}),
        (34, {"allocations": BY_PROVIDER, **OWNERS, "consumer_generation": None, "mappings": {"": [ROOT]}}),
        (38, {"allocations": BY_PROVIDER, **OWNERS, "consumer_generation": None, "consumer_type": "INSTANCE"}),
    ],
)
def test_a_claim_has_the_form_of_its_version(tree: Any, minor: int, body: dict[str, Any]) -> None:
    """Each form is accepted in its version, not in the one before, and shown in 1.39 with what it left out."""
    path = f"/allocations/{CONSUMER}"
    if minor:
        assert ask(tree, minor - 1, "PUT", path, body).status_code == 400

    assert ask(tree, minor, "PUT", path, body).status_code == 204

    shown = tree.get(path)
    assert shown == {
        "allocations": {ROOT: {"generation": 2, "resources": {"VCPU": 2}}},
        "project_id": body.get("project_id", NOBODY),
        "user_id": body.get("user_id", NOBODY),
        "consumer_generation": 1,
        "consumer_type": body.get("consumer_type", "unknown"),
    }


def test_an_old_claim_replaces_one_of_any_generation(tree: Any) -> None:
    """Before 1.28 generations are not compared; type and owners that the body does not have are kept or defaults."""
    path, claim = f"/allocations/{CONSUMER}", {"allocations": BY_PROVIDER, **OWNERS}
    tree.send("PUT", path, {**claim, "consumer_generation": None, "consumer_type": "INSTANCE"})

    assert ask(tree, 12, "PUT", path, claim).status_code == 204
    assert ask(tree, 12, "PUT", path, {**claim, "allocations": {}}).status_code == 400
    assert ask(tree, 28, "PUT", path, {**claim, "consumer_generation": None}).status_code == 409

    shown = tree.get(path)
    assert (shown["consumer_generation"], shown["consumer_type"]) == (2, "INSTANCE")


@pytest.mark.parametrize(
    ("minor", "names"),
    [
        (11, {"allocations"}),
        (12, {"allocations", "project_id", "user_id"}),
        (28, {"allocations", "project_id", "user_id", "consumer_generation"}),
    ],
)
def test_allocations_show_what_the_version_knows(tree: Any, minor: int, names: set[str]) -> None:
    """Owners since 1.12, the consumer's generation since 1.28; usages are by type since 1.38."""
    ask(tree, 12, "PUT", f"/allocations/{CONSUMER}", {"allocations": BY_PROVIDER, **OWNERS})

    assert set(ask(tree, minor, "GET", f"/allocations/{CONSUMER}").json) == names
    of_provider = ask(tree, minor, "GET", f"/resource_providers/{ROOT}/allocations").json["allocations"][CONSUMER]
    assert ("consumer_generation" in of_provider) == (minor >= 28)
    assert ask(tree, minor, "GET", "/usages?project_id=blue").json == {"usages": {"VCPU": 2}}
    assert ask(tree, minor, "GET", "/usages?project_id=red").json == {"usages": {}}


def test_candidates_have_the_form_of_their_version(tree: Any) -> None:
    """An array before 1.12; traits since 1.17, all classes since 1.27, trees since 1.29, mappings since 1.34."""
    documents = {
        minor: ask(tree, minor, "GET", "/allocation_candidates?resources=VCPU:2").json
        for minor in (10, 12, 17, 27, 29, 34)
    }

    listed = [{"resource_provider": {"uuid": ROOT}, "resources": {"VCPU": 2}}]
    assert listed in [each["allocations"] for each in documents[10]["allocation_requests"]]
    assert {"allocations": BY_PROVIDER} in documents[12]["allocation_requests"]
    assert {"allocations": BY_PROVIDER, "mappings": {"": [ROOT]}} in documents[34]["allocation_requests"]
    vcpu, disk = {"VCPU": {"capacity": 8, "used": 0}}, {"DISK_GB": {"capacity": 100, "used": 0}}
    assert [documents[minor]["provider_summaries"][ROOT] for minor in (12, 17, 27, 29)] == [
        {"resources": vcpu},
        {"resources": vcpu, "traits": []},
        {"resources": vcpu | disk, "traits": []},
        {"resources": vcpu | disk, "traits": [], "parent_provider_uuid": None, "root_provider_uuid": ROOT},
    ]


def test_before_1_29_a_tree_gives_from_one_provider(tree: Any) -> None:
    """Candidates that take from two providers of a tree are left out, before the limit counts."""
    query = "/allocation_candidates?resources=VCPU:1,DISK_GB:1&limit=1"

    new, old = (ask(tree, minor, "GET", query).json for minor in (29, 28))
    spread = ask(tree, 28, "GET", "/allocation_candidates?resources=MEMORY_MB:1,DISK_GB:1").json

    assert (len(new["allocation_requests"]), set(new["provider_summaries"])) == (1, {ROOT, CHILD})
    assert old["allocation_requests"] == [{"allocations": {ROOT: {"resources": {"VCPU": 1, "DISK_GB": 1}}}}]
    assert set(old["provider_summaries"]) == {ROOT}
    assert spread == {"allocation_requests": [], "provider_summaries": {}}


def test_a_reader_sees_the_usages_of_its_own_project(service: Any) -> None:
    """And of no other; a role in the whole system is none in a project."""

    def status(path: str, **headers: str) -> int:
        return int(service.send("GET", path, headers={"X-Auth-Token": "ann", **headers}).status_code)

    reader = {"X-Roles": "member,reader", "X-Project-Id": "blue"}
    assert status("/usages?project_id=blue", **reader) == 200
    assert status("/usages?project_id=red", **reader) == 403
    assert status("/traits", **reader) == 403
    assert status("/traits", **{"X-Roles": "admin"}) == 200
    assert status("/traits", **{"X-Roles": "admin", "OpenStack-System-Scope": "all"}) == 403
