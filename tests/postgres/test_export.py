"""A live Placement as a topology: by its database and by its API, with other names, and seeded again."""

import json
import re
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from werkzeug.test import Client

from placebench.commands import options
from placebench.compare.what.http_request import HEADERS
from placebench.errors import ExportError, PlacebenchError
from placebench.lab.commands.export import COMMANDS, InventoryExportOptions
from placebench.lab.inventory.export.exporter import export
from placebench.lab.inventory.export.live_placement import PlacementData, read_api, read_database
from placebench.lab.inventory.seeding import find_topology, migrate, seed
from placebench.lab.inventory.topology import Topology, read_topology, render_toml
from placebench.lab.reference.api.pipeline import make_app

Export = Callable[..., int]
NOWHERE = "postgresql://nobody:secret@127.0.0.1:9/nothing"


@pytest.fixture
def placebench_export() -> Export:
    """`placebench lab export` with these arguments; returns its exit code."""
    parser, command = ArgumentParser(), COMMANDS["lab export"]
    command.configure(parser)
    return lambda *arguments: command.run(options.read(InventoryExportOptions, parser.parse_args(arguments)))


@pytest.fixture
def mixed(database_url: str) -> Topology:
    """Twenty trees of four types, half full."""
    topology = find_topology("mixed", trees=20, utilization=0.5)
    seed(topology, database_url)
    return topology


def candidates(url: str, topology: Topology) -> int:
    """How many the topology's request has."""
    engine = create_engine(url)
    answer = Client(make_app(engine, "dedup")).get(topology.request, headers=HEADERS).json
    engine.dispose()
    return len(answer["allocation_requests"])


def sorted_(cloud: PlacementData) -> tuple[object, ...]:
    """The cloud without the order of anything."""
    providers = [(each.uuid, each.parent_uuid, sorted(map(str, each.inventories))) for each in cloud.providers]
    names = [(each.uuid, sorted(each.traits), sorted(each.aggregates)) for each in cloud.providers]
    return sorted(providers), sorted(names), sorted((each, sorted(has)) for each, has in cloud.consumers.items())


@pytest.mark.parametrize(
    ("name", "trees", "utilization", "tree_types", "expected"),
    [
        ("nested-perfload", 9, 0.5, 1, 10),
        ("flat-perfload", 20, 1.0, 19, 0),
        ("shared-storage", 42, None, 12, 18),
        ("wide", 4, 0.5, 4, 1000),
        ("deep", 5, 0.7, 1, 10),
        ("mixed", 40, None, 17, 66),
        ("partly-used", 20, None, 1, 24),
    ],
)
def test_what_was_exported_answers_alike(
    database_url: str, tmp_path: Path, name: str, trees: int, utilization: float | None, tree_types: int, expected: int
) -> None:
    """Each topology of ours, seeded, exported, and seeded again as that: as many candidates, consumers and rows."""
    before = find_topology(name, trees=trees, utilization=utilization)
    first = seed(before, database_url)
    found = candidates(database_url, before)
    exported = export(read_database(database_url), salt="s", request=before.request)
    path = tmp_path / "mine.toml"
    path.write_text(render_toml(exported.topology))

    after = read_topology(path)
    second = seed(after, database_url, reset=True)

    assert (tree_types, expected) == (len(after.tree_types), found)
    assert expected == candidates(database_url, after)
    assert (first.providers, first.inventories, first.provider_traits, first.provider_aggregates) == (
        second.providers,
        second.inventories,
        second.provider_traits,
        second.provider_aggregates,
    )
    assert exported.consumers == len(read_database(database_url).consumers)
    assert () == exported.losses


def test_what_is_shared_grows_with_the_cloud(database_url: str, tmp_path: Path) -> None:
    """Shared storage exported and seeded twice as large has 36 candidates instead of 18, not four times as many."""
    before = find_topology("shared-storage", trees=42)
    seed(before, database_url)
    path = tmp_path / "mine.toml"
    path.write_text(render_toml(export(read_database(database_url), salt="s", request=before.request).topology))

    twice = read_topology(path, trees=84)
    seed(twice, database_url, reset=True)

    assert 36 == candidates(database_url, twice)


def test_the_api_and_the_database_are_read_alike(database_url: str, api_url: str, mixed: Topology) -> None:
    """All that belongs to 46 providers, through four requests each."""
    told: list[tuple[int, int]] = []

    by_api = read_api(api_url, "admin", lambda done, total: told.append((done, total)))

    assert sorted_(read_database(database_url)) == sorted_(by_api)
    assert (46, 46) == told[-1]


def test_no_name_of_the_source_is_in_the_file(
    placebench_export: Export, database_url: str, mixed: Topology, tmp_path: Path
) -> None:
    """No UUID, no name of a provider, aggregate, project or database, no custom trait; another salt, other names."""
    files = {salt: tmp_path / f"{salt}.toml" for salt in ("one", "two")}
    request = f"{mixed.request}&required=CUSTOM_RACK_A"
    for salt, path in files.items():
        placebench_export("--db", database_url, "--out", str(path), "--salt", salt, "--request", request)
    engine = create_engine(database_url)
    with engine.connect() as connection:
        uuids = [*connection.scalars(text("SELECT uuid FROM resource_providers UNION SELECT uuid FROM consumers"))]
        names = [*connection.scalars(text("SELECT name FROM resource_providers"))]
        aggregates = [*connection.scalars(text("SELECT uuid FROM placement_aggregates"))]
        traits = [*connection.scalars(text("SELECT name FROM traits WHERE name LIKE 'CUSTOM%'"))]
    engine.dispose()

    one, two = (path.read_text() for path in files.values())

    own = {*uuids, *names, *aggregates, *traits, "INSTANCE", "placebench", *(name.split("-")[0] for name in names)}
    assert {"CUSTOM_RACK_A", "CUSTOM_GPU", "plain", "nfs-10"} < own
    assert [] == [name for name in own if name in one]
    assert "HW_CPU_X86_AVX2" in one
    assert re.search(r"required=CUSTOM_[0-9A-F]{12}\b", one)
    assert one != two


def test_the_result_is_a_file_on_stdout_or_told(
    placebench_export: Export, database_url: str, mixed: Topology, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Piped, into --out, and as JSON; with the request for what most consumers have."""
    path = tmp_path / "mine.toml"

    placebench_export("--db", database_url, "--salt", "s")
    piped = capsys.readouterr().out
    placebench_export("--db", database_url, "--salt", "s", "--out", str(path))
    told = capsys.readouterr().out
    placebench_export("--db", database_url, "--salt", "s", "--json")
    document = json.loads(capsys.readouterr().out)

    assert piped == path.read_text() == document["toml"]
    assert told.startswith(f"{path}: A live Placement with other names: 46 providers in 20 trees of ")
    assert (20, 46, "/allocation_candidates?resources=DISK_GB:20") == tuple(
        document[key] for key in ("trees", "providers", "request")
    )
    assert 20 == sum(row["weight"] for row in document["rows"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--db", NOWHERE], "nobody:\\*\\*\\*@127.0.0.1:9/nothing: .*Connection refused"),
        (["--db", "nothing"], "no database URL"),
        (["--db", "sqlite://"], "has no table resource_providers: expected the database of a Placement"),
        (["--api", "http://127.0.0.1:9"], "http://127.0.0.1:9 does not respond: .*Connection refused"),
        (
            ["--db", "sqlite://", "--out", "no/where.toml"],
            "no file can be written at no/where.toml: No such file or directory",
        ),
        (["--db", "sqlite://", "--out", "mine.json"], "expected a file whose name ends in .toml"),
    ],
)
def test_what_is_wrong_is_one_line(placebench_export: Export, arguments: list[str], problem: str) -> None:
    """A dead database, no database, another one; a dead server; no place for the file."""
    with pytest.raises(PlacebenchError, match=problem) as caught:
        placebench_export(*arguments)

    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_refused_token_and_an_empty_placement_are_told(
    placebench_export: Export, database_url: str, api_url: str
) -> None:
    """What to give, and that there is nothing; a request with ids is none for other data."""
    with pytest.raises(ExportError, match=r"responded 40[13]: give a --token that it takes \(noauth2: admin\)"):
        placebench_export("--api", api_url, "--token", "")
    with pytest.raises(ExportError, match="this Placement has no resource providers: there is nothing to export"):
        placebench_export("--api", api_url)
    seed(find_topology("flat-perfload", trees=1), database_url)
    with pytest.raises(ExportError, match="--request names 12345678-1234-1234-1234-123456789012: expected no ids"):
        placebench_export("--db", database_url, "--request", "/x?in_tree=12345678-1234-1234-1234-123456789012")


def test_what_placement_would_not_give_today_is_left_out(database_url: str) -> None:
    """Of two hosts with 32 consumers one is cut to what 10 have; a consumer of two trees is one in each."""
    topology = find_topology("flat-perfload", trees=2, utilization=1.0)
    seed(topology, database_url)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE inventories SET total = 10 WHERE id = 1 AND total = 32"))
        last = "(SELECT uuid FROM consumers WHERE id = 64)"
        connection.execute(text(f"UPDATE allocations SET consumer_id = {last} WHERE id = 1"))
    engine.dispose()

    exported = export(read_database(database_url), salt="s")

    assert exported.losses == (
        "consumers of several trees, who are another one in each: 1",
        "consumers left out of a tree, since Placement would not give today what they have: 22",
    )


def test_a_database_without_our_history_is_only_read(database_url: str) -> None:
    """Of one that another program made nothing is changed, not even a version table."""
    migrate(database_url)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE placebench_receipts, placebench_readers, placebench_changes CASCADE"))
        before = [*connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"))]

    with pytest.raises(ExportError, match="nothing to export"):
        export(read_database(database_url), salt="s")

    with engine.connect() as connection:
        query = text("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        assert before == [*connection.scalars(query)]
    engine.dispose()
