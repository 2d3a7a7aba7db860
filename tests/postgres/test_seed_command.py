"""`placebench lab seed`: what it prints where, and what it refuses in one line."""

import io
import json
from argparse import ArgumentParser
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from sqlalchemy import make_url
from statements import run

from placebench.commands import options
from placebench.commands.output import set_verbosity
from placebench.errors import DatabaseError, PlacebenchError, SeedError, UsageError
from placebench.lab.commands.seed import COMMANDS, SeedOptions
from placebench.lab.inventory.seeding import data_digest

Seed = Callable[..., int]


@pytest.fixture
def placebench_seed() -> Seed:
    """The command with these arguments; returns its exit code."""
    parser, command = ArgumentParser(), COMMANDS["lab seed"]
    command.configure(parser)

    def run(*arguments: str) -> int:
        given = options.read(SeedOptions, parser.parse_args(arguments))
        set_verbosity(quiet=given.output.quiet, verbose=given.output.verbose)
        return command.run(given)

    return run


def test_json_is_the_receipt_alone_on_stdout(
    placebench_seed: Seed, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages go to stderr, so that the output can be piped."""
    placebench_seed("--db", database_url, "--trees", "2")
    capsys.readouterr()

    exit_code = placebench_seed("--db", database_url, "--trees", "3", "--seed", "7", "--reset", "--json")

    printed = capsys.readouterr()
    receipt = json.loads(printed.out)
    assert exit_code == 0
    assert (receipt["providers"], receipt["inventories"], receipt["provider_traits"]) == (21, 27, 12)
    assert (receipt["seed"], receipt["digest"]) == (7, data_digest(database_url))
    assert receipt["elapsed_s"] > 0
    assert "removed 18 inventories, 8 resource_provider_traits, 14 resource_providers" in printed.err


class Terminal(io.StringIO):
    """A person at a terminal who types this."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.long
def test_rows_of_others_go_only_when_told(
    placebench_seed: Seed, database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--reset names the database and the rows, and asks; without a terminal it refuses; --yes is for scripts."""
    arguments = ("--db", database_url, "--trees", "2", "--reset")
    placebench_seed(*arguments)
    placebench_seed(*arguments)  # what placebench seeded needs no question
    run(database_url, "UPDATE inventories SET total = 7")
    name = str(make_url(database_url).database)

    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    with pytest.raises(UsageError, match=f"{name} holds rows that placebench did not seed.*14 in resource_providers"):
        placebench_seed(*arguments)
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    with pytest.raises(UsageError, match="nothing was removed"):
        placebench_seed(*arguments)
    assert run(database_url, "SELECT DISTINCT total FROM inventories") == [7]

    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    capsys.readouterr()
    assert placebench_seed(*arguments) == 0
    assert "Type yes to remove them all:" in capsys.readouterr().err
    run(database_url, "UPDATE inventories SET total = 7")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert placebench_seed(*arguments, "--yes") == 0
    assert 7 not in run(database_url, "SELECT DISTINCT total FROM inventories")


def test_a_cloud_is_filled_as_asked(
    placebench_seed: Seed, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight consumers of four allocations in nine trees; again is nothing, and another utilization is refused."""
    arguments = ("--db", database_url, "--trees", "9", "--utilization")

    placebench_seed(*arguments, "0.5")
    told = capsys.readouterr().out
    placebench_seed(*arguments, "0.5", "--json")
    again = json.loads(capsys.readouterr().out)

    assert ", 8 consumers with 32 allocations in " in told
    assert (8, 32) == (again["consumers"], again["allocations"])
    with pytest.raises(SeedError, match="32 allocations of nested-perfload, 9 trees, seed 1: give --reset"):
        placebench_seed(*arguments, "0.6")


def test_the_variable_names_the_database(
    placebench_seed: Seed, database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --db; the result is one line that a reader can check."""
    monkeypatch.setenv("PLACEBENCH_DATABASE_URL", database_url)

    placebench_seed("--topology", "flat-perfload", "--trees", "2")

    assert capsys.readouterr().out.startswith("flat-perfload, 2 trees, seed 1, by_copy: 2 providers, 6 inventories, ")


def test_no_database_is_told_in_one_line(placebench_seed: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    """seed acts on the database that it is given, and on no other."""
    monkeypatch.delenv("PLACEBENCH_DATABASE_URL", raising=False)

    with pytest.raises(DatabaseError, match="which database\\? give --db"):
        placebench_seed()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology", "x"], "no topology 'x': there are"),
        (["--loader", "x"], "no loader 'x': there are copy, http, sql"),
    ],
)
def test_bad_input_is_told_in_one_line(
    placebench_seed: Seed, database_url: str, arguments: list[str], message: str
) -> None:
    """Exit code 2, before anything is written."""
    with pytest.raises(PlacebenchError, match=message) as caught:
        placebench_seed("--db", database_url, *arguments)

    assert caught.value.exit_code == 2


@pytest.mark.long
@pytest.mark.skipif(find_spec("pyuwsgi") is None, reason="no uWSGI here to serve with")
def test_http_without_a_server_serves_by_itself(
    placebench_seed: Seed, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference service answers for as long as it is loaded."""
    placebench_seed("--db", database_url, "--trees", "2", "--loader", "http", "--json")

    assert json.loads(capsys.readouterr().out)["providers"] == 14
