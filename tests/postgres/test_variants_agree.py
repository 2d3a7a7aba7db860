"""Every variant gives the same document: the cumulative series, leave-one-out, and each further implementation."""

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from placebench.lab.inventory.seeding import find_topology, migrate_options, seed
from placebench.lab.reference.api.handlers.candidates import find_candidates
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.optimizations.search import MATCHING
from placebench.lab.reference.variants import (
    ALGORITHMS,
    CATALOGUE,
    algorithms_leave_one_out,
    cumulative,
    further_alternatives,
    leave_one_out,
    missing_extra,
    variant,
)
from placebench.runtime.postgres import Server

SHARES = "MISC_SHARES_VIA_AGGREGATE"
OF_DEDUP = ("dedup+totals:by_trigger", *algorithms_leave_one_out())
ALL = (*cumulative()[1:], *leave_one_out(), *further_alternatives(), *OF_DEDUP)
# An implementation whose extra is not installed cannot be run.
VARIANTS = tuple(name for name in ALL if not missing_extra(name))
TREES = 3
# Requests whose response is any so many of the full set: the variants may choose differently.
SHOWN = [each for each in CATALOGUE if each.request.startswith("/allocation_candidates")]
UNLIMITED = {each.request.partition("&limit=")[0]: each.topology for each in SHOWN}

QUERIES = (
    "resources=VCPU:1",
    "resources=VCPU:1,DISK_GB:10",
    "resources=VCPU:1,DISK_GB:10&required=STORAGE_DISK_SSD",
    "resources=VCPU:1&required=in:CUSTOM_RED,CUSTOM_BLUE&required=!CUSTOM_BLUE",
    "resources=VCPU:1,DISK_GB:10&member_of={agg}",
    "resources=VCPU:1,DISK_GB:10&member_of=in:{agg},{other}&member_of=!{other}",
    "resources=VCPU:1,DISK_GB:10&in_tree={n1a}",
    "resources=DISK_GB:10&resources1=VCPU:1",
    "resources=DISK_GB:10&resources1=VCPU:1&root_required=!CUSTOM_BLUE",
    "resources=VGPU:1&resources1=VGPU:1&resources2=VGPU:1&group_policy=none",
    "resources=VGPU:1&resources1=VGPU:1&resources2=VGPU:1&group_policy=isolate",
    "resources1=VCPU:1&resources2=VGPU:1&group_policy=none&same_subtree=1,2",
    "resources2=VGPU:1&required1=CUSTOM_RED&group_policy=none&same_subtree=1,2",
    "resources=DISK_GB:10000",
    "resources=VCPU:1&root_required=CUSTOM_BLUE",
)


PROVIDERS = {"cn1", "n1a", "g1a", "n1b", "g1b", "cn2", "n2", "g2", "cn3", "ss"}


@pytest.fixture
def mixed(cloud: Any) -> Any:
    """Something of everything: nested, shared, used, ruled.

    cn1 [agg]   DISK_GB 40, SSD        cn2 [agg other]               cn3   VCPU 8, DISK_GB 8 (step 5)
     ├ n1a   VCPU 4 (1 used), RED       └ n2   VCPU 2, BLUE
     │  └ g1a   VGPU 2                     └ g2   VGPU 3 (1 used)
     └ n1b   VCPU 4 (max 2), BLUE
        └ g1b   VGPU 2                 ss [agg]   DISK_GB 1000, SSD, shares
    """
    cloud.add("cn1", aggregates="agg", traits="STORAGE_DISK_SSD", DISK_GB=40)
    cloud.add("n1a", parent="cn1", traits="CUSTOM_RED", VCPU=4, used={"VCPU": 1})
    cloud.add("g1a", parent="n1a", VGPU=2)
    cloud.add("n1b", parent="cn1", traits="CUSTOM_BLUE", VCPU={"total": 4, "max_unit": 2})
    cloud.add("g1b", parent="n1b", VGPU=2)
    cloud.add("cn2", aggregates="agg other")
    cloud.add("n2", parent="cn2", traits="CUSTOM_BLUE", VCPU=2)
    cloud.add("g2", parent="n2", VGPU=3, used={"VGPU": 1})
    cloud.add("cn3", VCPU=8, DISK_GB={"total": 8, "step_size": 5})
    cloud.add("ss", aggregates="agg", traits=f"STORAGE_DISK_SSD {SHARES}", DISK_GB=1000)
    return cloud


def in_one_order(document: dict[str, Any]) -> dict[str, Any]:
    """The document with everything sorted whose order means nothing."""
    for summary in document["provider_summaries"].values():
        summary["traits"].sort()
    for request in document["allocation_requests"]:
        for providers in request["mappings"].values():
            providers.sort()
    document["allocation_requests"].sort(key=repr_of_request)
    return document


def repr_of_request(request: dict[str, Any]) -> str:
    """Something to sort allocation requests by, whatever the order of their keys."""
    allocations = sorted((key, sorted(each["resources"].items())) for key, each in request["allocations"].items())
    return repr((allocations, sorted(request["mappings"].items())))


@pytest.mark.parametrize("cloud", ["on_postgresql"], indirect=True)
@pytest.mark.parametrize("name", ["naive", "tuned", "dedup", "cached"])
def test_a_search_leaves_no_reference_cycles(mixed: Any, name: str) -> None:
    """What a request has made is freed with its response; objects in a cycle would wait for a garbage collection."""
    mixed.document(QUERIES[0], name)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for query in QUERIES:
            mixed.document(query, name)
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("placebench")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert left == set()


@pytest.mark.long
@pytest.mark.parametrize("cloud", ["on_postgresql", "on_sqlite"], indirect=True)
def test_every_variant_answers_as_naive_does(mixed: Any) -> None:
    """Fifteen requests on a cloud that has something of everything; all but the last two have candidates."""
    possible = [name for name in VARIANTS if mixed.dialect == "postgresql" or not variant(name).postgresql_only]

    def documents(name: str) -> list[dict[str, Any]]:
        return [in_one_order(mixed.document(query, name)) for query in QUERIES]

    expected = documents("naive")

    assert [bool(document["allocation_requests"]) for document in expected] == [True] * 13 + [False] * 2
    assert [name for name in possible if documents(name) != expected] == []


def test_every_algorithm_answers_as_naive_does(mixed: Any) -> None:
    """The same, of the algorithm that the cloud is made with."""
    documents = [in_one_order(mixed.document(query)) for query in QUERIES]

    assert [in_one_order(mixed.document(query, "naive")) for query in QUERIES] == documents


BESIDE_TUNED = ("naive+trees:joined", "naive+roots:recursive", "dedup-few", "dedup-unshared")
ROOTLESS = pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("cn3", {"cn3"}),
        ("ss", {"ss"}),
        ("g1a", {"g1a"}),
        ("n1a", {"n1a", "g1a"}),
        ("cn1", {"cn1", "n1a", "g1a", "n1b", "g1b"}),
    ],
)


@pytest.mark.long
@ROOTLESS
def test_a_provider_without_a_root_and_what_stands_below_it_is_not_there(mixed: Any, name: str, gone: set[str]) -> None:
    """A tree of its own, one that shares, a leaf, one in the middle, a root: in every algorithm, until it has one."""
    names = ["naive", *(BESIDE_TUNED if mixed.own == "tuned" else ()), mixed.own]
    possible = [name for name in names if mixed.dialect == "postgresql" or not variant(name).postgresql_only]

    def documents(name: str) -> list[dict[str, Any]]:
        return [in_one_order(mixed.document(query, name)) for query in QUERIES]

    whole = documents(mixed.own)
    mixed.root(name, there=False)
    naive, *others = [documents(name) for name in possible]
    mixed.root(name, there=True)

    assert {each for document in naive for each in document["provider_summaries"]} == PROVIDERS - gone
    assert others == [naive] * len(others)
    assert documents(mixed.own) == whole


@pytest.fixture(scope="module")
def nested(server: Server) -> Iterator[Engine]:
    """Three trees of the topology that the benchmark runs on."""
    url = server.create_database("placebench_test_nested")
    seed(find_topology("nested-perfload", trees=TREES), url)
    migrate_options(url, ("covering_indexes", "usage_totals"))
    engine = create_engine(url)
    yield engine
    engine.dispose()
    server.drop_database("placebench_test_nested")


@pytest.fixture(scope="module")
def devices(server: Server) -> Iterator[dict[str | None, Engine]]:
    """One host each of the topologies of devices, by their names."""
    engines: dict[str | None, Engine] = {}
    for name in ("gpu-hosts", "gpu-nodes"):
        url = server.create_database(f"placebench_test_{name}")
        seed(find_topology(name, trees=1), url)
        migrate_options(url, ("covering_indexes", "usage_totals"))
        engines[name] = create_engine(url)
    yield engines
    for name, engine in engines.items():
        engine.dispose()
        server.drop_database(f"placebench_test_{name}")


@pytest.mark.long
@pytest.mark.parametrize("request_path", UNLIMITED)
def test_every_variant_agrees_where_an_optimization_shows(
    nested: Engine, devices: dict[str | None, Engine], request_path: str
) -> None:
    """The request that each optimization names has the same candidates in every variant: none if it is about requests
    that cannot be met, else some."""
    wanted = parse_query(request_path.partition("?")[2])
    engine = devices.get(UNLIMITED[request_path], nested)

    def document(name: str) -> dict[str, Any]:
        with engine.connect() as connection:
            return in_one_order(json.loads(find_candidates(connection, wanted, variant(name))))

    expected = document("naive")

    assert bool(expected["allocation_requests"]) == (not MATCHING.request.startswith(request_path))
    assert [name for name in (*VARIANTS, *ALGORITHMS) if document(name) != expected] == []


def test_equal_groups_are_read_once(devices: dict[str | None, Engine]) -> None:
    """A group more that wants the same takes no statement more in `tuned`, and one more without `distinct`."""

    def count_statements(name: str, groups: int) -> int:
        sent = []
        engine, wanted = devices["gpu-hosts"], "&".join(f"resources{number}=VGPU:1" for number in range(groups))
        listener = lambda *arguments: sent.append(arguments[2])  # noqa: E731
        event.listen(engine, "before_cursor_execute", listener)
        with engine.connect() as connection:
            find_candidates(connection, parse_query(f"{wanted}&group_policy=isolate&limit=1"), variant(name))
        event.remove(engine, "before_cursor_execute", listener)
        return len(sent)

    assert count_statements("tuned", 8) == count_statements("tuned", 1)
    assert count_statements("tuned-distinct", 8) == count_statements("tuned-distinct", 1) + 7


def test_the_headline_request_has_two_candidates_a_tree(nested: Engine) -> None:
    """Both in the NUMA node with the trait, one for each of its two FPGAs; seven summaries a tree."""
    topology = find_topology("nested-perfload", trees=TREES)
    with nested.connect() as connection:
        body = find_candidates(connection, parse_query(topology.request.partition("?")[2]), variant("tuned"))

    document = json.loads(body)
    assert len(document["allocation_requests"]) == 2 * TREES
    assert len(document["provider_summaries"]) == 7 * TREES
