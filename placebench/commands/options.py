"""Options that several commands share: functions that add them, dataclasses that hold them, and their types.

An option has the same name, metavar and meaning in every command: each `add_…` function adds some options to a
command's parser. `read` turns parsed arguments into a command's frozen dataclass; parts that commands share, such as
`OutputOptions`, are dataclasses here. The types (`whole`, `number`, `path` …) refuse invalid values with a message that
has the expected and the given value.
"""

import os
import re
from argparse import SUPPRESS, Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from placebench import addresses, limits
from placebench.errors import DatabaseError, PlacebenchError, UsageError
from placebench.gates import SECONDS
from placebench.paths import is_file

if TYPE_CHECKING:
    from argparse import _ActionsContainer

    from _typeshed import DataclassInstance

    from placebench.http_session import Request
    from placebench.meters.remote_hosts import RemoteHost

_Options = TypeVar("_Options")
_Dataclass = TypeVar("_Dataclass", bound="DataclassInstance")
TOPOLOGY, SEED = "nested-perfload", 1
STUDY_REPLICATES = 6
"""The least that give an interval of 95 %."""
DATABASES = ("postgresql", "mariadb", "sqlite", "none")
DATABASE_VARIABLE = "PLACEBENCH_DATABASE_URL"
_MAX_SHOWN = 60
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(us|ms|s)")
MAY_BE_FILE = {"may_be_file": True}
"""Marks the field of an option that takes a name or a file; the file is copied to the machine of --host."""


@dataclass(frozen=True)
class OutputOptions:
    """The format and amount of the output; options that a command lacks are False."""

    json: bool = False
    markdown: bool = False
    open: bool = False
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class RunOptions:
    """The options that decide where a run is made and where its folder is."""

    command: str = ""
    """The words that call the command, as the label of its progress."""
    out: Path | None = None
    resume: bool | None = None
    """Whether to resume a run; None if the command has no --resume."""
    server: str | None = None
    host: str | None = None
    client_host: str | None = None
    hosts: Path | None = None
    has_client_host: bool = False
    """Whether the command has the option --client-host."""
    client: "RemoteHost | None" = None
    """The machine of --client-host once it was found, because the machine of --host has no hosts file to find it in."""


@dataclass(frozen=True)
class RunCommandOptions:
    """The base class for the options of all commands that make a run folder."""

    run: RunOptions
    output: OutputOptions


@dataclass(frozen=True)
class DataOptions:
    """The inventory data set of a command, with default values."""

    topology: str = field(default=TOPOLOGY, metadata=MAY_BE_FILE)
    trees: int | None = None
    seed: int = SEED
    utilization: float | None = None


@dataclass(frozen=True)
class PlanDataOptions:
    """The inventory data set of a command whose plan may describe one; None means the plan decides."""

    topology: str | None = field(default=None, metadata=MAY_BE_FILE)
    trees: int | None = None
    seed: int | None = None
    utilization: float | None = None


@dataclass(frozen=True)
class ComparisonOptions(RunCommandOptions):
    """The options of every comparison of a plan; None means the plan decides."""

    data: PlanDataOptions = PlanDataOptions()
    replicates: int | None = None
    rounds: int | None = None
    sequential: bool = False
    width: float | None = None
    python: Path | None = None
    placement_python: Path | None = None
    control: str | None = None


@dataclass(frozen=True)
class RequestOptions:
    """The requests of the command line, as text."""

    requests_given: tuple[tuple[str, str], ...] = ()
    """Each --request, --header and --body with its value, in the order given."""
    login: tuple[str, ...] = ()

    def logins(self) -> "list[Request]":
        """Return the requests of --login, in the order given."""
        from placebench.http_session import Request

        return [Request.read(each) for each in self.login]

    def requests(self) -> "list[Request]":
        """Return the requests, each with the headers and bodies that follow it and those that precede all requests."""
        from placebench.http_session import Request, parse_header, read_body, read_text

        requests: list[Request] = []
        common: dict[str, str] = {}
        body: bytes | None = None
        for option, text in self.requests_given:
            if option == "--request":
                requests.append(Request.read(text))
            elif option == "--header":
                header = parse_header(read_text(text))
                if requests:
                    requests[-1] = replace(requests[-1], headers={**requests[-1].headers, **header})
                else:
                    common |= header
            elif requests:
                requests[-1] = replace(requests[-1], body=read_body(f"@{text}"))
            else:
                body = read_body(f"@{text}")
        if not requests and (common or body):
            requests = [Request("GET", "/")]

        def complete(request: Request) -> Request:
            """Add the headers and the body that are common to all requests, unless the request has its own."""
            own = {name.lower() for name in request.headers}
            shared = {name: value for name, value in common.items() if name.lower() not in own}
            return replace(request, headers={**request.headers, **shared}, body=request.body or body or b"")

        return list(map(complete, requests))


def read(kind: type[_Options], parsed: Namespace) -> _Options:
    """Return the options of a command as its dataclass, whose fields are named after argparse's destinations.

    A field that is a dataclass is read likewise; a list becomes a tuple. A field without an option in the command keeps
    its default.
    """
    assert is_dataclass(kind)
    values: dict[str, Any] = {}
    for each in fields(kind):
        if isinstance(each.type, type) and is_dataclass(each.type):
            values[each.name] = read(each.type, parsed)
        elif each.name in parsed:
            value = getattr(parsed, each.name)
            values[each.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def refuse(given: "DataclassInstance", names: Iterable[str], why: str) -> None:
    """Raise UsageError for the first of the options *names* that was given.

    names: fields of *given* or of its parts, such as check_writes for --check-writes. why: what is said after it.
    """
    values = _values_by_name(given)
    for name in names:
        if value := values[name]:
            option = value[0][0] if name == "requests_given" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {why}")


def _values_by_name(given: "DataclassInstance") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in fields(given):
        value = getattr(given, each.name)
        is_part = is_dataclass(value) and not isinstance(value, type)
        values |= _values_by_name(value) if is_part else {each.name: value}
    return values


def take_files(given: _Dataclass) -> tuple[_Dataclass, tuple[Path, ...]]:
    """Return the options with each file that stands for a name replaced by its bare file name, and those files."""
    changed: dict[str, Any] = {}
    found: list[Path] = []
    for each in fields(given):
        value = getattr(given, each.name)
        if is_dataclass(value) and not isinstance(value, type):
            changed[each.name], below = take_files(value)
            found.extend(below)
        elif each.metadata.get("may_be_file") and value and is_file(path := Path(value)):
            changed[each.name] = path.name
            found.append(path)
    return replace(given, **changed), tuple(found)


def add_output(parser: ArgumentParser, *, markdown: bool = False, page: bool = False) -> None:
    """Add --json, --quiet and --verbose, and --markdown and --open if the command has Markdown or a page."""
    group = parser.add_argument_group("output")
    formats = group.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print the result as one JSON document")
    if markdown:
        formats.add_argument("--markdown", action="store_true", help="print the result as Markdown")
    if page:
        group.add_argument("--open", action="store_true", help="open the page in a browser")
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="print no progress")
    loudness.add_argument(
        "-v", "--verbose", action="store_true", help="print the time of each progress line, and the traceback of errors"
    )


def add_run(parser: ArgumentParser, *, resume: bool = True) -> None:
    """Add --server, --out and --resume to a command that makes a run folder."""
    add_server(parser)
    add_out(parser, "folder of the run (default: a new one in profiles/)")
    if resume:
        parser.add_argument("--resume", action="store_true", help="go on with the run in --out, or with the newest one")


def add_host(parser: ArgumentParser, *, client: bool = True) -> None:
    """Add --host, --client-host and --hosts, which decide on which machine a run is made."""
    parser.set_defaults(has_client_host=client)
    parser.add_argument(
        "--host",
        type=text,
        metavar="NAME",
        help="machine that everything is started and measured on, by SSH: a host of --hosts, or what the command ssh "
        "takes (default: this one)",
    )
    if client:
        parser.add_argument(
            "--client-host",
            type=text,
            metavar="NAME",
            help="machine that timed requests are sent from, as --host: the servers run where they would without it, "
            "and are reached over the network (default: that of the servers)",
        )
    parser.add_argument("--hosts", type=path, metavar="FILE", help="TOML file that describes the machines by name")


def add_server(parser: ArgumentParser) -> None:
    """Add --server, an existing PostgreSQL server."""
    parser.add_argument(
        "--server",
        type=text,
        metavar="URL",
        help="existing PostgreSQL server on which scratch databases are created (default: an embedded one)",
    )


def add_out(parser: ArgumentParser, help: str, *, metavar: str = "DIR", default: Path | None = None) -> None:  # noqa: A002
    """Add --out, the folder or file to write."""
    parser.add_argument("-o", "--out", type=path, metavar=metavar, default=default, help=help)


def add_gates(parser: ArgumentParser) -> None:
    """Add --gate, the conditions of a comparison."""
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="EXPR",
        help="what must hold: 'statements <= 18', or 'cpu_s < 1.03x' of the base; exit code 1 if it does not, "
        "3 if that is inconclusive; may be repeated",
    )


def add_database(parser: "_ActionsContainer", help: str) -> None:  # noqa: A002
    """Add --db, the database that the command acts on."""
    parser.add_argument("--db", type=text, metavar="URL", help=help)


def database_url(given: str | None, *, what: str = "database") -> str:
    """Return the given URL, or else the URL in the environment; raise DatabaseError if there is neither."""
    if url := given or os.environ.get(DATABASE_VARIABLE):
        return url
    option = "--server" if what == "server" else "--db"
    raise DatabaseError(f"which {what}? give {option} postgresql://user:password@host/name, or set {DATABASE_VARIABLE}")


def add_data(parser: ArgumentParser, *, plan: str = "", utilization: bool = True, requests: bool = True) -> None:
    """Add --topology, --utilization, --trees and --seed, and --request unless *requests* is False.

    plan: the source of a topology and a seed that the options override, as it is named in the help; the defaults are
    None then.
    """
    add_topology(parser, plan=plan)
    if utilization:
        add_utilization(parser)
    if requests:
        parser.add_argument(
            "--request", type=request, metavar="PATH", help="path and query to request (default: the topology's)"
        )
    add_size(parser, plan=plan)


def add_topology(parser: ArgumentParser, *, plan: str = "") -> None:
    """Add --topology, the name or file of the inventory data set."""
    default = f"the {plan}'s, or {TOPOLOGY}" if plan else TOPOLOGY
    parser.add_argument(
        "--topology",
        default=None if plan else TOPOLOGY,
        metavar="NAME|FILE",
        help=f"inventory data set: a name or a .toml file (default: {default})",
    )


def add_utilization(parser: ArgumentParser) -> None:
    """Add --utilization, the allocated share of the inventory."""
    parser.add_argument(
        "--utilization",
        type=share,
        metavar="0..1",
        help="share of the inventory that is allocated (default: the topology's)",
    )


def add_size(parser: ArgumentParser, *, plan: str = "", at_least: int = 1) -> None:
    """Add --trees and --seed, which determine the size and content of the data."""
    parser.add_argument(
        "--trees",
        type=whole(at_least, limits.TREES),
        metavar="N",
        help="number of provider trees (default: the topology's)" + ("" if at_least else "; 0: the schema alone"),
    )
    add_seed(parser, "seed of ids and of every random choice", plan=plan)


def add_seed(parser: ArgumentParser, help: str, *, plan: str = "") -> None:  # noqa: A002
    """Add --seed, the seed of random choices."""
    default = f"the {plan}'s, or {SEED}" if plan else SEED
    parser.add_argument(
        "--seed",
        type=whole(limits.MIN_SEED, limits.MAX_SEED),
        default=None if plan else SEED,
        metavar="N",
        help=f"{help} (default: {default})",
    )


def add_replicates(parser: "_ActionsContainer", default: int | str, *, at_least: int = 0) -> None:
    """Add --replicates without a default value: the command chooses it, because a preset may have another."""
    parser.add_argument(
        "-n",
        "--replicates",
        type=whole(at_least, limits.REPLICATES),
        metavar="N",
        help=f"number of replicates (default: {default})",
    )


def add_sequential(parser: ArgumentParser) -> None:
    """Add --sequential and --width, which let the results decide when a run stops."""
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="stop measuring a variant as soon as it has a verdict; its interval remains valid",
    )
    parser.add_argument(
        "--width",
        type=number(0, 100, above=True),
        metavar="PERCENT",
        help="with --sequential: stop when the CPU interval is at most this many percentage points wide, rather than "
        "at a verdict",
    )


def add_preset(parser: ArgumentParser, **presets: str) -> None:
    """Add --preset with the given names, each with its meaning for the help text."""
    described = "; ".join(f"{name}: {meaning}" for name, meaning in presets.items())
    parser.add_argument("--preset", choices=list(presets), help=f"how much is measured (default: default). {described}")


def add_rounds(parser: ArgumentParser, default: int | str) -> None:
    """Add --rounds, the number of rounds per replicate."""
    parser.add_argument(
        "--rounds",
        type=whole(1, limits.ROUNDS),
        metavar="N",
        help=f"number of rounds in a replicate (default: {default})",
    )


def add_data_of_own(parser: "_ActionsContainer") -> None:
    """Add --setup and --template-db, the user's own data that is copied."""
    parser.add_argument(
        "--setup",
        type=text,
        metavar="COMMAND",
        help="shell command that fills the database at $DATABASE_URL, which is then copied for each variant "
        "(default: the plan's)",
    )
    parser.add_argument(
        "--template-db",
        type=text,
        metavar="URL",
        help="database, PostgreSQL or SQLite, that is copied for each variant and stays as it is (default: the plan's)",
    )


def add_own_application(parser: "_ActionsContainer") -> None:
    """Add --python, and the options that say where the data of the user's own application comes from and lies."""
    parser.add_argument(
        "--python",
        type=path,
        metavar="PATH",
        help="Python of the environment that the application is in, for tables that name none (default: this one)",
    )
    add_data_of_own(parser)
    parser.add_argument(
        "--database",
        choices=DATABASES,
        help="where the data lies; mariadb: a server of placebench's own (default: the plan's, or that of "
        "--template-db, or postgresql)",
    )


def add_loss(parser: ArgumentParser) -> None:
    """Add --loss, the share of packets that an emulated link loses."""
    parser.add_argument(
        "--loss",
        type=number(0, 50),
        default=0.0,
        metavar="PERCENT",
        help="share of the packets that are lost; each arrives, with what follows it, 200 ms and a latency later "
        "(default: 0)",
    )


def add_telemetry(parser: ArgumentParser, help: str) -> None:  # noqa: A002
    """Add --telemetry, whose default is an environment variable."""
    parser.add_argument(
        "--telemetry",
        type=path,
        default=os.environ.get("PLACEBENCH_TELEMETRY") or None,
        metavar="DIR",
        help=f"{help} (default: $PLACEBENCH_TELEMETRY)",
    )


def add_comparison(parser: ArgumentParser, *, rounds: str, requests: bool = True) -> None:
    """Add the options of every comparison of a plan, except for the number of replicates."""
    add_data(parser, plan="plan", requests=requests)
    add_rounds(parser, rounds)
    add_placement(parser)
    add_run(parser)
    add_output(parser, markdown=True, page=True)


def add_plan(parser: "_ActionsContainer") -> None:
    """Add --plan, the file that describes variants, data and trials."""
    parser.add_argument(
        "--plan",
        type=path,
        metavar="FILE",
        help="variants, data and trials of a .toml file (default: [tool.placebench] of ./pyproject.toml)",
    )


def add_placement(parser: ArgumentParser) -> None:
    """Add --placement-python, the Python that has the real Placement."""
    parser.add_argument(
        "--placement-python",
        type=path,
        metavar="PATH",
        help="Python of the environment that the real Placement is installed in (default: that of `tox -e oracle`)",
    )


class _ReadRequest(Action):
    """Stores --request, --header and --body in their order: a header belongs to the request before it or to all."""

    def __call__(
        self, _parser: ArgumentParser, namespace: Namespace, values: object, option: str | None = None
    ) -> None:
        namespace.requests_given = [*namespace.requests_given, (option, values)]


def add_requests(parser: ArgumentParser, *, default: str) -> None:
    """Add --request, --header and --body, which `RequestOptions` parses."""
    parser.set_defaults(requests_given=[])
    parser.add_argument(
        "--request",
        action=_ReadRequest,
        default=SUPPRESS,
        metavar="'GET /x'",
        help="method, path with its query, and body, as in 'POST /x {\"a\": 1}' or 'POST /x @FILE' "
        f"(default: {default}); may be repeated",
    )
    parser.add_argument(
        "--header",
        action=_ReadRequest,
        default=SUPPRESS,
        metavar="'NAME: VALUE'",
        help="header of the request before it, or of all requests if it comes before the first; may be repeated",
    )
    parser.add_argument(
        "--body", action=_ReadRequest, default=SUPPRESS, metavar="FILE", help="body of the request before it"
    )


def add_login(parser: ArgumentParser) -> None:
    """Add --login, the requests that log in."""
    parser.add_argument(
        "--login",
        action="append",
        default=[],
        metavar="'POST /login …'",
        help="request that is sent first and not measured; its cookies, or its access token, are kept; @FILE or "
        "env:NAME reads it from a file or a variable, so that no list of processes shows a password; may be repeated",
    )


_WHOLE = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def whole(at_least: int, at_most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from *at_least* to *at_most*."""

    def read(text: str) -> int:
        # int() takes "1_0", " 5" and the digits of every script, and no more than 4300 of them.
        value = int(text) if _WHOLE.fullmatch(text) else at_least - 1
        if not at_least <= value <= at_most:
            raise ArgumentTypeError(f"expected a whole number from {at_least} to {at_most}, saw {_shown(text)}")
        return value

    return read


def wholes(at_least: int, at_most: int) -> Callable[[str], list[int]]:
    """Return a parser of comma-separated whole numbers in this range; the result is sorted and has no duplicates."""
    read = whole(at_least, at_most)
    return lambda text: sorted({read(each) for each in text.split(",")})


def number(at_least: float, at_most: float, *, above: bool = False) -> Callable[[str], float]:
    """Return a parser of numbers from *at_least* to *at_most*; above: *at_least* itself is excluded."""

    def read(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else float("nan")
        if not at_least <= value <= at_most or (above and value == at_least):
            begin = f"above {at_least:g} and up" if above else f"from {at_least:g}"
            raise ArgumentTypeError(f"expected a number {begin} to {at_most:g}, saw {_shown(text)}")
        return value

    return read


def duration(text: str) -> float:
    """Parse a duration with its unit, such as 200ms; return seconds."""
    found = _DURATION.fullmatch(text.strip())
    value = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0 < value <= limits.COMPARED_BOUND_S:
        most = f"{limits.COMPARED_BOUND_S:g}s"
        raise ArgumentTypeError(f"expected a duration such as 200ms or 1.5s, at most {most}, saw {_shown(text)}")
    return value


request_count = whole(1, limits.REQUESTS)
warmup_count = whole(0, limits.REQUESTS)
worker_count = whole(1, limits.WORKERS)
seconds = number(0, limits.SECONDS, above=True)
share = number(0, 1)


def text(given: str) -> str:
    """Return the text; refuse an empty one, because an empty shell variable is a mistake and not a default."""
    if not given:
        raise ArgumentTypeError("expected a text, saw ''")
    return given


def names(text: str) -> list[str]:
    """Parse distinct names separated by commas."""
    found = text.split(",")
    if "" in found or len(set(found)) < len(found):
        raise ArgumentTypeError(f"expected different names with commas between, saw {_shown(text)}")
    return found


def path(text: str) -> Path:
    """Return a path, which may be missing; refuse one that no system accepts, such as a name of 300 letters."""
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"{_shown(text)}: {getattr(error, 'strerror', None) or error}") from error
    if not text:
        raise ArgumentTypeError("expected a path, saw ''")
    return Path(text)


def request(text: str) -> str:
    """Return a path with its query; refuse one that cannot be sent as it is."""
    try:
        return addresses.check_request(text)
    except PlacebenchError as error:
        raise ArgumentTypeError(str(error)) from error


def service_url(text: str) -> str:
    """Return the URL of a service; refuse any other URL."""
    try:
        return addresses.service_address(text).geturl()
    except PlacebenchError as error:
        raise ArgumentTypeError(str(error)) from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} …")
