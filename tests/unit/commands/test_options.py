"""What the options take, and what they say of the rest."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from placebench.cli import parser_of
from placebench.commands import COMMANDS, options
from placebench.errors import UsageError


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (options.whole(1, 5), "5", 5),
        (options.wholes(1, 40), "10,1,10", [1, 10]),
        (options.seconds, "1.5e1", 15.0),
        (options.whole(-(2**63), 2**63 - 1), "-9223372036854775808", -(2**63)),
        (options.number(0, 1), "0", 0.0),
        (options.seconds, "0.5", 0.5),
        (options.names, "naive,tuned", ["naive", "tuned"]),
        (options.request, '/a?b=c:1,2&d="!"', '/a?b=c:1,2&d="!"'),
        (options.service_url, "http://[::1]:8000/placement", "http://[::1]:8000/placement"),
        (options.path, "not/there/yet", Path("not/there/yet")),
    ],
)
def test_what_is_in_range_is_taken(read: Callable[[str], Any], text: str, value: Any) -> None:
    """The ends of a range belong to it, but where it is above something."""
    assert value == read(text)


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (options.whole(1, 5), "6", "expected a whole number from 1 to 5, saw '6'"),
        (options.whole(1, 50), "1_0", "expected a whole number from 1 to 50, saw '1_0'"),
        (options.whole(1, 5), " 5", "expected a whole number from 1 to 5, saw ' 5'"),
        (options.whole(1, 5), "٣", "expected a whole number from 1 to 5, saw '٣'"),
        (options.whole(1, 5), "", "expected a whole number from 1 to 5, saw ''"),
        (options.wholes(1, 40), "1,1_0", "expected a whole number from 1 to 40, saw '1_0'"),
        (options.wholes(1, 40), "1,", "expected a whole number from 1 to 40, saw ''"),
        (options.seconds, "1_0", "expected a number above 0 and up to 604800, saw '1_0'"),
        (options.seconds, "٣", "expected a number above 0 and up to 604800, saw '٣'"),
        (options.whole(1, 5), "1.0", "expected a whole number from 1 to 5, saw '1.0'"),
        (options.whole(1, 5), "1" * 5000, f"expected a whole number from 1 to 5, saw '{'1' * 60} …'"),
        (options.seconds, "0", "expected a number above 0 and up to 604800, saw '0'"),
        (options.seconds, "nan", "expected a number above 0 and up to 604800, saw 'nan'"),
        (options.seconds, "1e400", "expected a number above 0 and up to 604800, saw '1e400'"),
        (options.names, "a,b,a", "expected different names with commas between, saw 'a,b,a'"),
        (options.names, "a,", "expected different names with commas between, saw 'a,'"),
        (options.share, "-0.1", "expected a number from 0 to 1, saw '-0.1'"),
        (options.request, "orders", "the request 'orders' is not a path: expected /path?query"),
        (options.request, "/a b?c=é", "the request '/a b?c=é' has to be sent percent-encoded: /a%20b?c=%C3%A9"),
        (options.request, "/a#b", "the request '/a#b' is not a path: expected /path?query"),
        (
            options.service_url,
            "http://[::1",
            "'http://[::1' is not the URL of a service, such as http://127.0.0.1:8000",
        ),
        (
            options.service_url,
            "http://a:99999",
            "'http://a:99999' is not the URL of a service, such as http://127.0.0.1:8000",
        ),
        (options.service_url, "ftp://a", "'ftp://a' is not the URL of a service, such as http://127.0.0.1:8000"),
        (options.path, "x" * 300, f"'{'x' * 60} …': File name too long"),
        (options.path, "", "expected a path, saw ''"),
        (options.text, "", "expected a text, saw ''"),
    ],
)
def test_what_is_not_is_told_with_what_was_expected(read: Callable[[str], Any], text: str, told: str) -> None:
    """One line, however long the value is."""
    with pytest.raises(ArgumentTypeError) as raised:
        read(text)

    assert told == str(raised.value)


@dataclass(frozen=True)
class BreadOptions:
    """The options of a baker."""

    data: options.DataOptions
    loaves: tuple[str, ...]
    oven: str = "hot"


def test_a_dataclass_is_made_of_what_was_parsed() -> None:
    """Options of a shared dataclass are in it, lists are tuples, and what was not parsed keeps its default."""
    parsed = Namespace(loaves=["rye", "rye"], topology="gpu-hosts", seed=7, trees=None, utilization=0.5, yeast=True)

    assert options.read(BreadOptions, parsed) == BreadOptions(
        data=options.DataOptions("gpu-hosts", None, 7, 0.5), loaves=("rye", "rye")
    )


@dataclass(frozen=True)
class Load:
    """Options, some of which are in a part."""

    workload: options.RequestOptions
    check_writes: bool = False
    users: int | None = None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Load(options.RequestOptions(), check_writes=True, users=4), "--check-writes is not for this"),
        (Load(options.RequestOptions((("--header", "A: b"),)), users=4), "--header is not for this"),
        (Load(options.RequestOptions(login=("GET /in",))), "--login is not for this"),
    ],
)
def test_the_first_option_that_does_not_apply_is_named(given: Load, told: str) -> None:
    """As the user wrote it; what was not given is not complained of."""
    names = ("check_writes", "requests_given", "login", "users")

    with pytest.raises(UsageError) as refused:
        options.refuse(given, names, "is not for this")

    assert told == str(refused.value)
    options.refuse(Load(options.RequestOptions()), names, "is not for this")


def test_a_topology_that_is_a_file_goes_along(tmp_path: Path) -> None:
    """The other machine gets the file, and its name alone in place of its path; what is not a file stays as it is."""
    (tmp_path / "mine.toml").write_text("")
    of_file = BreadOptions(options.DataOptions(topology=str(tmp_path / "mine.toml")), ())
    of_name = BreadOptions(options.DataOptions(), ())

    assert options.take_files(of_file) == (
        BreadOptions(options.DataOptions(topology="mine.toml"), ()),
        (tmp_path / "mine.toml",),
    )
    assert options.take_files(of_name) == (of_name, ())


def names_of(kind: type) -> tuple[set[str], set[str]]:
    """The options that a dataclass and those in it read, and those of them without a default."""
    every, needed = set[str](), set[str]()
    for each in fields(kind):
        if isinstance(each.type, type) and is_dataclass(each.type):
            inside, needed_inside = names_of(each.type)
            every |= inside
            needed |= needed_inside
        else:
            every.add(each.name)
            needed |= {each.name} if each.default is MISSING else set()
    return every, needed


@pytest.mark.parametrize("words", [name for name, entry in COMMANDS.own.items() if entry.module])
def test_each_option_of_a_command_is_a_field(words: str) -> None:
    """None is parsed and then ignored, and none is read that the parser does not have."""
    command = import_module(COMMANDS.own[words].module).COMMANDS[words]
    names, needed = names_of(command.options)
    parser = parser_of(words)
    parsed = {action.dest for action in parser._actions if action.dest != "help"} | set(parser._defaults)

    shared = {"command", "has_client_host", "quiet", "verbose"}
    in_order = {"request", "header", "body"} if "requests_given" in parsed else set[str]()
    assert parsed - names - shared - in_order == set()
    assert needed - parsed == set()
