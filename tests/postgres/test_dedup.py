"""What is particular to `dedup`: trees read part by part, or as few as a limit wants; roots younger than children."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.reference.api.handlers.candidates import find_candidates
from placebench.lab.reference.candidates import dedup_service as service
from placebench.lab.reference.candidates.dedup import equivalence, relevance, selection
from placebench.lab.reference.candidates.dedup.decode import DecodedTrees
from placebench.lab.reference.candidates.dedup.equivalence import EquivalenceClasses
from placebench.lab.reference.candidates.dedup.fetch import fetch, read_rows
from placebench.lab.reference.candidates.dedup.relevance import Assessor
from placebench.lab.reference.candidates.dedup.solver import solve
from placebench.lab.reference.candidates.dedup.statements import Trees
from placebench.lab.reference.candidates.dedup.tree_index import TreeIndex
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.store.database import Database
from placebench.lab.reference.variants import ALGORITHMS, variant
from placebench.runtime.postgres import Server

TREES = 40
LISTED = re.compile(r"resource_provider_id = ANY \(.\{([0-9,]*)\}")
REFERENCE_QUERY = find_topology("nested-perfload", trees=TREES).request.partition("?")[2]


@pytest.fixture(scope="module")
def nested(server: Server) -> Iterator[Engine]:
    """Forty trees of seven providers, with two candidates each for the reference request."""
    url = server.create_database("placebench_test_dedup")
    seed(find_topology("nested-perfload", trees=TREES), url)
    engine = create_engine(url)
    yield engine
    engine.dispose()
    server.drop_database("placebench_test_dedup")


def document(connection: Connection, query: str, name: str = "dedup") -> dict[str, Any]:
    """The response of a variant, its requests and traits in one order."""
    found = find_candidates(connection, parse_query(query), variant(name))
    read: dict[str, Any] = json.loads(found if isinstance(found, bytes) else b"".join(found))
    read["allocation_requests"].sort(key=repr)
    return {**read, "provider_summaries": dict(sorted(read["provider_summaries"].items()))}


def use_disk(connection: Connection, root_id: int, amount: int = 5) -> None:
    """Allocate so much of the root's inventory."""
    insert = (
        "INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, used)"
        " SELECT resource_provider_id, resource_class_id, 'somebody', :amount FROM inventories"
        " WHERE resource_provider_id = :root"
    )
    connection.execute(text(insert), {"root": root_id, "amount": amount})


def test_a_response_in_parts_is_the_same(nested: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 50 ids instead of all 280 providers at once, of which all but one may have nothing to say; an unknown
    trait is found in parts too."""
    with nested.connect() as connection:
        whole = document(connection, REFERENCE_QUERY)
        last = connection.execute(text("SELECT uuid FROM resource_providers ORDER BY id DESC LIMIT 1")).scalar_one()
        in_one_tree = f"resources=DISK_GB:10&in_tree={last}"
        one = document(connection, in_one_tree)
        monkeypatch.setattr(service, "MAX_HELD_IDS", 50)
        monkeypatch.setattr(service, "MAX_INDEXED_PROVIDERS", 279)

        assert document(connection, REFERENCE_QUERY) == whole
        assert document(connection, in_one_tree) == one
        assert len(one["provider_summaries"]) == 7
        assert len(whole["allocation_requests"]) == 2 * TREES == 80
        with pytest.raises(BadRequest, match="CUSTOM_NOBODY"):
            find_candidates(connection, parse_query("resources=DISK_GB:1&required=CUSTOM_NOBODY"), variant("dedup"))


def test_a_limit_ends_the_reading(nested: Engine) -> None:
    """Of forty trees the first eight are read for five candidates of one a tree, all for more than there are."""
    read: list[str] = []
    event.listen(nested, "before_cursor_execute", lambda *arguments: read.append(arguments[2]))
    with nested.connect() as connection:
        few = document(connection, "resources=DISK_GB:10&limit=5")
        few_read = list(read)
        many = document(connection, "resources=DISK_GB:10&limit=100")

    assert len(few["allocation_requests"]) == 5
    assert len(few["provider_summaries"]) == 7 * 5 == 35
    assert sum("LIMIT 8" in statement for statement in few_read) == 1
    assert len(few_read) == 3
    assert len(many["allocation_requests"]) == TREES == 40


@pytest.fixture
def statements(nested: Engine) -> Iterator[list[str]]:
    """What is sent to PostgreSQL."""
    sent: list[str] = []

    def note(*arguments: Any) -> None:
        sent.append(arguments[2])

    event.listen(nested, "before_cursor_execute", note)
    yield sent
    event.remove(nested, "before_cursor_execute", note)


def read(nested: Engine, query: str) -> dict[str, Any]:
    """The response of `dedup` in a transaction of its own, as the service makes one."""
    with Database(nested).snapshot() as connection:
        return document(connection, query)


def test_a_tree_is_read_again_once_a_transaction_wrote_something(nested: Engine, statements: list[str]) -> None:
    """Two requests for the same and one for other candidates: one reads. After a claim the next one looks for changes
    and reads one tree, and when it is taken back."""
    before = [read(nested, query) for query in (REFERENCE_QUERY, REFERENCE_QUERY, "resources=DISK_GB:10")]
    counts = [len(statements)]
    for number in (5, -5):
        with nested.begin() as connection:
            use_disk(connection, 1, number)
        statements.clear()
        after = read(nested, "resources=DISK_GB:10")
        counts.append(len(statements))

    assert counts == [6 + 1 + 1, 3, 3]
    assert "root_provider_id = ANY ('{1}'" in statements[2]
    assert after == before[2] != before[1] == before[0]


def test_a_limit_takes_the_same_from_rows_that_are_kept(nested: Engine, statements: list[str]) -> None:
    """For few, for more than are read at first and for all there are, wherever the trees begin that come first."""
    queries = [f"resources=DISK_GB:{amount}&limit={limit}" for amount in range(1, 9) for limit in (1, 5, 20, 100)]
    nested.dispose()
    with Database(nested).snapshot() as connection:
        expected = [find_candidates(connection, parse_query(query), variant("dedup")) for query in queries]
        document(connection, REFERENCE_QUERY)
        statements.clear()
        taken = [find_candidates(connection, parse_query(query), variant("dedup")) for query in queries]
        sent = list(statements)
        with pytest.raises(BadRequest, match="CUSTOM_NOBODY"):
            find_candidates(connection, parse_query(f"{queries[0]}&required=CUSTOM_NOBODY"), variant("dedup"))

    assert taken == expected
    assert len(sent) == len(queries)


def test_requests_with_a_limit_read_all_rows_once_that_costs_no_more(
    nested: Engine, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """280 providers cost as much as three reads of a few; from the fifth request on their rows are kept. Not while
    something is written in between, nor if there were more than are kept."""
    nested.dispose()
    monkeypatch.setattr(service, "_PROVIDERS_OF_A_FEW_READ", 280 // 3)

    def counts(requests: int, *, write: bool = False) -> list[int]:
        counted = []
        for _ in range(requests):
            statements.clear()
            read(nested, "resources=DISK_GB:10&limit=5")
            counted.append(len(statements))
            if write:
                with nested.begin() as connection:
                    use_disk(connection, 1, 0)
        return counted

    written = counts(6, write=True)
    kept = counts(7)
    with nested.begin() as connection:
        use_disk(connection, 1, 0)
    monkeypatch.setattr(service, "MAX_INDEXED_PROVIDERS", 279)
    nested.dispose()

    few = written[0]
    assert written == [few] * 6
    assert kept == [few] * 4 + [6] + [1] * 2
    assert counts(7) == [few] * 7


def test_a_connection_that_is_newer_than_the_rows_reads_them(nested: Engine, statements: list[str]) -> None:
    """It may be one to a server that crashed in between."""
    read(nested, REFERENCE_QUERY)
    for connection in [nested.connect() for _ in range(nested.pool.checkedin() + 1)]:  # type: ignore[attr-defined]
        connection.detach()
        connection.close()
    statements.clear()
    read(nested, REFERENCE_QUERY)

    assert len(statements) == 6


def test_what_the_transaction_itself_wrote_is_seen(nested: Engine) -> None:
    """Nothing was committed, and its snapshot is the same."""
    read(nested, REFERENCE_QUERY)
    with nested.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        before = document(connection, REFERENCE_QUERY)
        use_disk(connection, 1)

        assert document(connection, REFERENCE_QUERY) != before


def test_aggregates_are_read_where_a_request_needs_them_and_from_then_on(nested: Engine, statements: list[str]) -> None:
    """Rows without them serve no request for members; those that have them serve all."""
    counts = []
    members = "resources=DISK_GB:10&member_of=!00000000-0000-4000-8000-000000000001"
    nested.dispose()
    for query in ("resources=DISK_GB:10", members, "resources=DISK_GB:10"):
        statements.clear()
        read(nested, query)
        counts.append(len(statements))
    with nested.begin() as connection:
        use_disk(connection, 1, 0)
    statements.clear()
    read(nested, "resources=DISK_GB:10")

    assert [*counts, len(statements)] == [6, 7, 1, 3]


def test_an_index_is_updated_tree_by_tree(nested: Engine) -> None:
    """One disk is used: read again, its tree alone is of another class, and back again of the old one."""
    index = TreeIndex()
    with nested.connect() as connection:
        roots = fetch(connection, index)
        (layout,) = index.layouts.values()
        (tree_class,) = layout.classes.values()
        use_disk(connection, roots[3])
        assert fetch(connection, index, Trees.of([roots[3]])) == [roots[3]]
        other = index.class_of[roots[3]]
        connection.rollback()
        fetch(connection, index, Trees.of([roots[3]]))

    assert other.layout is layout
    assert other.resources[0] == tree_class.resources[0].replace('"used":0', '"used":5')
    assert other.most == (tree_class.most[0] - 5, *tree_class.most[1:])
    assert list(layout.classes.values()) == [tree_class]
    assert len(tree_class.trees) == TREES


def test_summaries_that_are_kept_are_written_anew_when_a_tree_changes(nested: Engine) -> None:
    """All trees have a candidate; after a change of one of them its summary alone is another."""
    with nested.connect() as connection:
        first, again = (document(connection, REFERENCE_QUERY)["provider_summaries"] for _ in range(2))
        root = connection.execute(text("SELECT max(root_provider_id) FROM resource_providers")).scalar_one()
        use_disk(connection, root)
        after = document(connection, REFERENCE_QUERY)["provider_summaries"]
        connection.rollback()
        restored = document(connection, REFERENCE_QUERY)["provider_summaries"]

    (changed,) = (uuid for uuid in first if first[uuid] != after[uuid])
    assert first == again == restored
    assert len(first) == len(after) == 7 * TREES
    assert after[changed]["resources"]["DISK_GB"]["used"] == 5


def test_above_a_size_nothing_is_kept_beside_the_trees(nested: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 280 providers the groups and forty summaries are kept, and neither of them where 279 are the most."""
    request, indexes = parse_query(REFERENCE_QUERY), (TreeIndex(), TreeIndex())
    with nested.connect() as connection:
        for each in indexes:
            fetch(connection, each)
    small, large = (layout for each in indexes for layout in each.layouts.values())

    kept = solve(indexes[0], request)
    for module in (equivalence, selection):
        monkeypatch.setattr(module, "MAX_KEPT_PROVIDERS", 279)
    assert solve(indexes[1], request) == kept
    assert (len(small.alike), len(small.written)) == (1, TREES)
    assert (large.alike, large.written) == ({}, {})


@pytest.mark.parametrize("cloud", ["dedup"], indirect=True)
def test_equal_storages_are_searched_once(cloud: Any, on_postgresql: Engine) -> None:
    """Each node has its own storage: one search for the two whose storages are equal, and each names its own.

    cn1 [a]  VCPU 4    cn2 [b]  VCPU 4    cn3 [c]  VCPU 4
    ss1 [a]  DISK 10   ss2 [b]  DISK 10   ss3 [c]  DISK 9
    """
    for number, (aggregate, total) in enumerate(zip("abc", (10, 10, 9), strict=True), 1):
        cloud.add(f"cn{number}", aggregates=aggregate, VCPU=4)
        cloud.add(f"ss{number}", aggregates=aggregate, traits="MISC_SHARES_VIA_AGGREGATE", DISK_GB=total)
    cloud.write()
    query, index = "resources=VCPU:1,DISK_GB:10", TreeIndex()
    with on_postgresql.connect() as connection:
        fetch(connection, index)
    classes = EquivalenceClasses(index, Assessor(parse_query(query))).all()

    assert [len(each.trees) for each in classes if not each.candidates.is_empty()] == [2]
    assert cloud.candidates(query) == ["cn1 VCPU:1, ss1 DISK_GB:10", "cn2 VCPU:1, ss2 DISK_GB:10"]
    assert sorted(cloud.document(query)["provider_summaries"]) == ["cn1", "cn2", "ss1", "ss2"]


def test_a_tree_that_an_earlier_request_named_is_searched_with_the_others(nested: Engine) -> None:
    """Only in_tree of the request itself sets a tree apart; all forty are equal."""
    index = TreeIndex()
    with nested.connect() as connection:
        fetch(connection, index)
    uuid = "00000000-0000-0000-0000-000000000001"
    index.names.roots_of_named[uuid] = next(iter(index.class_of))
    earlier = EquivalenceClasses(index, Assessor(parse_query(f"{REFERENCE_QUERY}&in_tree={uuid}")))

    classes = EquivalenceClasses(index, Assessor(parse_query(REFERENCE_QUERY)))

    assert [len(each.trees) for each in classes.all()] == [TREES]
    assert [len(each.trees) for each in earlier.all()] == [1, TREES - 1]


@pytest.mark.parametrize("cloud", ["dedup"], indirect=True)
def test_trees_are_grouped_as_before_only_for_amounts_on_the_same_levels(cloud: Any, on_postgresql: Engine) -> None:
    """Each response is that of tuned, whatever was requested before; also after a change, and for another class.

    cn1 [a]  VCPU 1    cn2 [a]  VCPU 2    cn3 [b]  VCPU 3    cn4 [b]  VCPU 4    cn5  VCPU 4, DISK 5
    sa [a]  DISK 10    sb [b]  DISK 20
    """
    for number, aggregates in enumerate("aabb", 1):
        cloud.add(f"cn{number}", aggregates=aggregates, VCPU=number)
    cloud.add("cn5", VCPU=4, DISK_GB=5)
    for aggregate, total in (("a", 10), ("b", 20)):
        cloud.add(f"s{aggregate}", aggregates=aggregate, traits="MISC_SHARES_VIA_AGGREGATE", DISK_GB=total)
    spread = [f"resources=VCPU:{vcpu},DISK_GB:{disk}" for vcpu in (1, 2, 4, 5) for disk in (4, 5, 6, 11, 21)]
    apart = [f"resources1=VCPU:{vcpu}&resources2=VCPU:2&group_policy=none" for vcpu in (1, 2, 3)]
    queries = [*spread, *apart, "resources=VCPU:2", "resources=DISK_GB:5", *spread[::-1]]

    before = [cloud.candidates(query) for query in queries]
    with on_postgresql.begin() as connection:
        connection.execute(text("UPDATE inventories SET total = 3 WHERE resource_provider_id = 1"))
    after = [cloud.candidates(query) for query in queries]

    assert before != after == [cloud.candidates(query, "tuned") for query in queries]
    with on_postgresql.begin() as connection:
        connection.execute(text("UPDATE inventories SET total = 1 WHERE resource_provider_id = 1"))
    assert before == [cloud.candidates(query, "tuned") for query in queries]
    assert len({tuple(found) for found in before}) > 9


@pytest.mark.parametrize("cloud", ["dedup"], indirect=True)
def test_a_root_may_be_younger_than_its_children(cloud: Any, on_postgresql: Engine) -> None:
    """cn2, made last, becomes the root above n: the summaries say so.

    cn2 └ n   VCPU 4
    """
    cloud.add("n", VCPU=4)
    cloud.add("cn2", DISK_GB=10)
    cloud.write()
    with on_postgresql.begin() as connection:
        connection.execute(text("UPDATE resource_providers SET root_provider_id = 2"))
        connection.execute(text("UPDATE resource_providers SET parent_provider_id = 2 WHERE id = 1"))

    summaries = cloud.document("resources=VCPU:1,DISK_GB:10")["provider_summaries"]

    parents = {name: (each["parent_provider_uuid"], each["root_provider_uuid"]) for name, each in summaries.items()}
    assert parents == {"cn2": (None, "cn2"), "n": ("cn2", "cn2")}


MOVE = "UPDATE resource_providers SET root_provider_id = 3, parent_provider_id = 3 WHERE id = 1"
USE = "INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, used) VALUES (1, 0, 'c', 3)"


@pytest.mark.parametrize("cloud", ["dedup"], indirect=True)
@pytest.mark.parametrize(
    ("change", "candidates"),
    [
        (MOVE, ["cn VCPU:2, ss DISK_GB:9"]),
        ("UPDATE inventories SET total = 1 WHERE resource_provider_id = 1", []),
        ("DELETE FROM resource_provider_traits", []),
        ("DELETE FROM resource_provider_aggregates WHERE resource_provider_id = 1", []),
        (USE, []),
    ],
)
def test_the_next_response_has_a_change_of_one_table_alone(
    cloud: Any, on_postgresql: Engine, change: str, candidates: list[str]
) -> None:
    """Whichever of the rows are others, the trees that are kept are not used as they were.

    cn [a]  VCPU 4    ss [a]  DISK 10    other  VCPU 1
    """
    cloud.add("cn", aggregates="a", VCPU=4)
    cloud.add("ss", aggregates="a", traits="MISC_SHARES_VIA_AGGREGATE", DISK_GB=10)
    cloud.add("other", VCPU=1)
    query = "resources=VCPU:2,DISK_GB:9"
    before = cloud.document(query)

    with on_postgresql.begin() as connection:
        connection.execute(text(change))

    assert len(before["allocation_requests"]) == 1
    assert cloud.candidates(query) == candidates
    assert cloud.document(query)["provider_summaries"] != before["provider_summaries"]


@pytest.mark.parametrize("cloud", ["dedup"], indirect=True)
def test_only_trees_in_which_other_amounts_are_used_are_decoded_again(cloud: Any, on_postgresql: Engine) -> None:
    """Of two trees of one kind the used one gets a class of its own, the other keeps its class."""
    cloud.add("cn1", VCPU=4)
    cloud.add("cn2", VCPU=4)
    cloud.write()
    with on_postgresql.connect() as connection:
        decoded = DecodedTrees(read_rows(connection), TreeIndex())
        before = dict(decoded.index.class_of)
        connection.execute(text(USE))
        decoded.use(read_rows(connection))

    assert before[1] is before[2] is decoded.index.class_of[2]
    assert decoded.index.class_of[1].most == (1,)
    assert list(before[2].trees) == [2]


@pytest.mark.long
@pytest.mark.parametrize("cloud", [*ALGORITHMS], indirect=True)
def test_a_range_of_sums_gives_the_candidates_of_the_exact_sums(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty random requests of two to four groups for one class or two, at hosts of which few are alike: the responses
    are those of naive, whether the sums of the amounts are told apart or are too many for it."""
    chance = random.Random(7)
    for host in range(12):
        cloud.add(f"cn{host}", VCPU=chance.randint(1, 40), used={"VCPU": chance.randint(0, 9)})
        for numa in range(2):
            cloud.add(f"n{host}{numa}", parent=f"cn{host}", VCPU=chance.randint(1, 30), VGPU=chance.randint(1, 9))
    queries = []
    for _ in range(60):
        groups = range(chance.randint(2, 4))
        wanted = [
            (number, chance.randint(1, 20), chance.choice(["", f",VGPU:{chance.randint(1, 4)}"])) for number in groups
        ]
        parameters = [f"resources{number or ''}=VCPU:{amount}{more}" for number, amount, more in wanted]
        queries.append("&".join([*parameters, f"group_policy={chance.choice(['none', 'isolate'])}"]))

    exact = [cloud.candidates(query) for query in queries]
    monkeypatch.setattr(relevance, "MAX_SUMS", 2)
    ranges = [cloud.candidates(query) for query in queries]

    assert [cloud.candidates(query, "naive") for query in queries] == exact == ranges
    assert sum(map(bool, exact)) > 30


@pytest.mark.parametrize("cloud", ["on_postgresql", *ALGORITHMS], indirect=True)
def test_more_groups_than_python_has_frames_have_a_candidate(cloud: Any) -> None:
    """1500 groups of one processor each, all from one host, where the depth of Python's stack is 1000."""
    cloud.add("cn", VCPU={"total": 1500, "max_unit": 1500})
    groups = "&".join(f"resources{number}=VCPU:1" for number in range(1500))

    assert cloud.candidates(f"{groups}&group_policy=none") == ["cn VCPU:1500"]
