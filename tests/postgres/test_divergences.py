"""Where Placement 16.0.0 is wrong, ours is right: the table of docs/lab/service.md, line by line.

What Placement itself says stands in that table and is shown by `tox -e oracle`; here is what ours says.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, insert
from werkzeug.test import Client, TestResponse

from placebench.lab.inventory import tables
from placebench.lab.reference.api.pipeline import make_app

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
PROVIDER = "00000000-0000-4000-8000-000000000001"
NOBODY = "00000000-0000-4000-8000-000000000099"
CONSUMER = "00000000-0000-4000-8000-000000000002"
SHARES = "MISC_SHARES_VIA_AGGREGATE"
VARIANTS = pytest.mark.parametrize("name", ["naive", "own"])

Send = Callable[..., TestResponse]


@pytest.fixture
def send(database_url: str) -> Iterator[Send]:
    """A request to the service over one provider with 8 VCPU, by the provider's side."""
    engine = create_engine(database_url)
    tables.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(tables.resource_classes).values(id=0, name="VCPU"))
    client = Client(make_app(engine, "tuned"))

    def send(method: str, path: str, body: Any = None) -> TestResponse:
        return client.open(path, method=method, json=body, headers=HEADERS)

    send("POST", "/resource_providers", {"name": "rp", "uuid": PROVIDER})
    stock = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
    send("PUT", f"/resource_providers/{PROVIDER}/inventories", stock)
    yield send
    engine.dispose()


def claim(provider: str, generation: int | None = None) -> dict[str, Any]:
    """One VCPU for a consumer."""
    allocations = {provider: {"resources": {"VCPU": 1}}}
    who = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}
    return {"allocations": allocations, "consumer_generation": generation, **who}


def taken(document: dict[str, Any]) -> list[dict[str, dict[str, int]]]:
    """What each candidate takes: amounts by class by provider; in one order."""
    requests = [request["allocations"] for request in document["allocation_requests"]]
    return sorted(({name: each["resources"] for name, each in request.items()} for request in requests), key=repr)


@VARIANTS
def test_d1_a_forbidden_trait_in_a_nested_cloud(cloud: Any, name: str) -> None:
    """cn └ red, blue: the group without suffix avoids the red one, on PostgreSQL too."""
    cloud.add("cn")
    cloud.add("red", parent="cn", traits="CUSTOM_RED", VCPU=4)
    cloud.add("blue", parent="cn", VCPU=4)

    document = cloud.document("resources=VCPU:1&required=!CUSTOM_RED", name)

    empty = {"resources": {}, "traits": [], "parent_provider_uuid": None, "root_provider_uuid": "cn"}
    four = {"resources": {"VCPU": {"capacity": 4, "used": 0}}, "parent_provider_uuid": "cn", "root_provider_uuid": "cn"}
    assert document == {
        "allocation_requests": [{"allocations": {"blue": {"resources": {"VCPU": 1}}}, "mappings": {"": ["blue"]}}],
        "provider_summaries": {"cn": empty, "red": {**four, "traits": ["CUSTOM_RED"]}, "blue": {**four, "traits": []}},
    }


def test_d2_usages_by_type_of_consumer(send: Send) -> None:
    """Without consumer_type, and with one: 200 and the sums, on PostgreSQL too."""
    send("PUT", f"/allocations/{CONSUMER}", claim(PROVIDER))

    for query in ("", "&consumer_type=INSTANCE"):
        response = send("GET", f"/usages?project_id=project{query}")
        assert (response.status_code, response.json) == (
            200,
            {"usages": {"INSTANCE": {"consumer_count": 1, "VCPU": 1}}},
        )


@VARIANTS
def test_d3_a_sharing_provider_below_a_root(cloud: Any, name: str) -> None:
    """cn takes its disk from a pool whose own tree has no VCPU; both trees are in the summaries."""
    cloud.add("cn", aggregates="agg", VCPU=4)
    cloud.add("storage")
    cloud.add("pool", parent="storage", aggregates="agg", traits=SHARES, DISK_GB=100)

    document = cloud.document("resources=VCPU:1,DISK_GB:10", name)

    assert taken(document) == [{"cn": {"VCPU": 1}, "pool": {"DISK_GB": 10}}]
    assert sorted(document["provider_summaries"]) == ["cn", "pool", "storage"]


@VARIANTS
def test_d4_a_group_satisfied_by_sharing_providers_alone(cloud: Any, name: str) -> None:
    """Both nodes can have their disk from ss: no candidate is lost."""
    cloud.add("cn1", aggregates="agg", VCPU=4)
    cloud.add("cn2", aggregates="agg", VCPU=4)
    cloud.add("ss", aggregates="agg", traits=SHARES, DISK_GB=100)

    document = cloud.document("resources=DISK_GB:10&resources1=VCPU:1", name)

    assert taken(document) == [
        {"ss": {"DISK_GB": 10}, "cn1": {"VCPU": 1}},
        {"ss": {"DISK_GB": 10}, "cn2": {"VCPU": 1}},
    ]


@VARIANTS
@pytest.mark.parametrize("policy", ["", "&group_policy=isolate"])
def test_d5_one_class_in_two_groups(cloud: Any, name: str, policy: str) -> None:
    """Each of the four ways to place 1 + 1 takes two in all, and the same request again says the same."""
    cloud.add("cn")
    cloud.add("n1", parent="cn", VCPU=2)
    cloud.add("n2", parent="cn", VCPU=2)
    query = f"resources=VCPU:1&resources1=VCPU:1{policy}"

    first, second = cloud.document(query, name), cloud.document(query, name)

    assert taken(first) == taken(second)
    assert sorted(taken(first), key=repr) == sorted(
        [
            {"n1": {"VCPU": 1}, "n2": {"VCPU": 1}},
            {"n2": {"VCPU": 1}, "n1": {"VCPU": 1}},
            {"n1": {"VCPU": 2}},
            {"n2": {"VCPU": 2}},
        ],
        key=repr,
    )


@pytest.mark.parametrize("twice", ["limit=x&limit=5", "limit=5&limit=x", "group_policy=foo&group_policy=none"])
def test_d6_every_value_is_validated(send: Send, twice: str) -> None:
    """A value that is overruled must be right too."""
    response = send("GET", f"/allocation_candidates?resources=VCPU:1&{twice}")

    assert response.status_code == 400


def test_d6_the_first_value_is_used(send: Send) -> None:
    """One candidate of one; and isolate, which is named first, keeps two groups from the one provider."""
    groups = "resources1=VCPU:1&resources2=VCPU:1"
    policies = ("group_policy=isolate&group_policy=none", "group_policy=none&group_policy=isolate")
    found = [send("GET", f"/allocation_candidates?{groups}&{policy}&limit=1&limit=9").json for policy in policies]

    assert [len(document["allocation_requests"]) for document in found] == [0, 1]


@VARIANTS
def test_d9_what_is_used_counts_while_pruning(cloud: Any, name: str) -> None:
    """A device of two units, one of them used, has no room for two groups of one."""
    cloud.add("cn")
    cloud.add("gpu", parent="cn", VGPU=2, used={"VGPU": 1})

    document = cloud.document("resources1=VGPU:1&resources2=VGPU:1&group_policy=none", name)

    assert document == {"allocation_requests": [], "provider_summaries": {}}


@pytest.mark.parametrize(("method", "path"), [("PUT", f"/allocations/{CONSUMER}"), ("POST", "/allocations")])
def test_d12_a_refused_claim_leaves_nothing_behind(send: Send, method: str, path: str) -> None:
    """400 for an unknown provider; the same consumer may then be made as a new one."""
    refused = claim(NOBODY) if method == "PUT" else {CONSUMER: claim(NOBODY)}

    assert send(method, path, refused).status_code == 400
    assert send("PUT", f"/allocations/{CONSUMER}", claim(PROVIDER)).status_code == 204
    assert send("GET", f"/allocations/{CONSUMER}").json["consumer_generation"] == 1


def test_d12_a_new_consumer_that_is_given_nothing_is_not_kept(send: Send) -> None:
    """204, and the same again: the consumer is still new."""
    nothing = {**claim(PROVIDER), "allocations": {}}

    assert [send("PUT", f"/allocations/{CONSUMER}", nothing).status_code for _ in range(2)] == [204, 204]
