"""Wrong and fake speed-ups, each beside an honest variant: refused with one line, counted all the same, or named."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import cheats
import pytest

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.usefixtures("without_profiles")

PLAN = """
database = "{database}"
{keys}

[app]
command = "{python} {cheats} {{port}}"
ready = "/"

[variants.honest]
"""
VARIANT = """
[variants.{name}]
env = {{ CHEAT = "{cheat}" }}
"""
PRICES = 'requests = ["PUT /price?to=1", "GET /price", "PUT /price?to=2", "GET /price"]'
TABLES = (
    "import os, sqlite3; connection = sqlite3.connect(os.environ['DATABASE_URL'][10:]); "
    "connection.executescript('CREATE TABLE orders (id); CREATE TABLE jobs (id); INSERT INTO orders VALUES (0)')"
)
Compare = Callable[..., tuple[int, str, results.Run]]


@pytest.fixture
def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """A comparison of the honest shop with these cheats: exit code, last line on stderr, run."""

    def run(
        keys: str, *cheating: str, database: str = "none", options: tuple[str, ...] = ()
    ) -> tuple[int, str, results.Run]:
        (tmp_path / "seed.py").write_text(TABLES)
        plan = PLAN.format(database=database, keys=keys, python=sys.executable, cheats=cheats.__file__)
        plan += "".join(VARIANT.format(name=cheat.replace(" ", "-"), cheat=cheat) for cheat in cheating)
        (tmp_path / "plan.toml").write_text(plan)
        given = ["--plan", str(tmp_path / "plan.toml"), "--rounds", "1", "-n", "0", "-q", "-o", str(tmp_path / "run")]
        code = main(["compare", *given, *options])
        last = (capsys.readouterr().err.splitlines() or [""])[-1]
        return code, last, results.load(tmp_path / "run")

    return run


def last_paragraph(run: results.Run) -> str:
    """What the summary ends with."""
    return (run.folder / "summary.md").read_text().splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("cheat", "keys", "database", "expected"),
    [
        ("dropped rows", 'request = "/orders"', "none", "$ has 19 entries where 20 were expected"),
        ("sometimes", 'request = "/orders"', "none", "$[0].id is 19 where 0 was expected"),
        ("redirect", 'request = "/orders"', "none", "status is 302 where 200 was expected"),
        ("stale", PRICES, "none", "GET /price: /price #2: stale differs from honest"),
        ("lost write", 'requests = ["POST /orders"]', "sqlite", "orders by +14 rows in honest and by +0 in lost-write"),
        ("queued", 'requests = ["POST /orders"]', "sqlite", "jobs by +0 rows in honest and by +14 in queued"),
    ],
)
def test_other_results_are_refused(cheat: str, keys: str, database: str, expected: str, compare: Compare) -> None:
    """One line, exit code 1, and a paragraph without a claim."""
    setup = f'\nsetup = "{sys.executable} seed.py"' if database == "sqlite" else ""

    code, last, run = compare(keys + setup, cheat, database=database)

    assert code == 1
    assert expected in last
    assert last_paragraph(run).startswith("Same responses: no. ")
    assert last_paragraph(run).endswith("No speed-up may be claimed.")


@pytest.mark.long
def test_work_that_is_moved_out_of_the_request_is_counted(compare: Compare) -> None:
    """By a daemon outside of the process tree, and by a thread after the response: 5 ms of CPU all the same."""
    _, _, run = compare('request = "/work"', "daemon", "deferred", options=("-n", "1"))

    blocks = {name: [each for each in run.blocks if each.variant == name] for name in run.head.variants}
    cpu_s = {
        name: sum(each.cpu_s or 0 for each in made) / sum(each.requests for each in made)
        for name, made in blocks.items()
    }
    assert {name for name, each in cpu_s.items() if each > 0.9 * cheats.WORK_S} == {"honest", "daemon", "deferred"}
    named = re.findall(r"(\w+) does (\d+) % of its work after its responses", last_paragraph(run))
    percent = {name: int(share) for name, share in named}
    assert percent["deferred"] > 40 > percent.get("daemon", 0)


@pytest.mark.long
def test_results_that_are_kept_between_requests_are_named(compare: Compare, server: Server) -> None:
    """By a cache of responses, and by work at import: the three statements of the first request do not come again.

    A variant that sends none of them while they are counted is named too. In the second replicate the variants have
    swapped their databases: each has the statements of the one that it uses.
    """
    setup = "setup = \"psql -qc 'CREATE TABLE orders (id integer)'\""
    keys = f'request = "/orders"\n{setup}'

    options = ("--server", server.url, "-n", "2")
    _, _, run = compare(keys, "cached", "precomputed", "detects", database="postgresql", options=options)

    assert {name: (each.table_statements, each.first_statements) for name, each in run.wire.items()} == {
        "honest": (3, 0),
        "cached": (0, 3),
        "precomputed": (0, 3),
        "detects": (0, 0),
    }
    assert {name: each.timed_statements for name, each in run.wire.items()} == {
        "honest": 3,
        "cached": 0,
        "precomputed": 0,
        "detects": 3,
    }
    for name in ("cached", "precomputed"):
        assert f"{name} keeps results between requests" in last_paragraph(run)
    assert "detects sends 3 statements on tables per request while it is timed, and 0 when" in last_paragraph(run)
    assert "honest keeps" not in last_paragraph(run)
    assert "honest sends" not in last_paragraph(run)


@pytest.mark.parametrize(("warm_up", "counted"), [("3", 3), ("100", 0)])
def test_statements_of_a_warm_service_are_counted(warm_up: str, counted: int, compare: Compare, server: Server) -> None:
    """--warmup is for the counts too, so that a cache that fills later is filled when they are taken."""
    keys = 'request = "/orders"\nsetup = "psql -qc \'CREATE TABLE orders (id integer)\'"'
    options = ("--server", server.url, "--warmup", warm_up)

    _, _, run = compare(keys, "cached later", database="postgresql", options=options)

    assert [3, counted] == [run.wire[name].table_statements for name in run.head.variants]
