"""`placebench db`: an embedded PostgreSQL that outlives the command, and scratch databases left over by runs."""

from argparse import ArgumentParser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands import Command, options
from placebench.commands.output import emit, print_json, print_result, say
from placebench.errors import DatabaseError

if TYPE_CHECKING:
    from placebench.runtime.postgres.persistent_server import PersistentServer
    from placebench.runtime.postgres.scratch import ScratchDatabase


@dataclass(frozen=True)
class ServerOptions:
    """The options of `placebench db start`, `stop` and `url`."""

    output: options.OutputOptions
    dir: Path | None
    sqlalchemy: bool = False
    remove: bool = False


@dataclass(frozen=True)
class CleanOptions:
    """The options of `placebench db clean`."""

    output: options.OutputOptions
    server: str | None
    yes: bool


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=options.path, metavar="DIR", help="folder of the server (default: one in the user's state folder)"
    )
    options.add_output(parser)


def _configure_url(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sqlalchemy",
        action="store_true",
        help="print the URL that create_engine takes here: SQLAlchemy 2.1 reads postgresql:// as psycopg 3",
    )
    _configure(parser)


def _configure_stop(parser: ArgumentParser) -> None:
    parser.add_argument("--remove", action="store_true", help="remove its data too")
    _configure(parser)


def _configure_clean(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        type=options.text,
        metavar="URL",
        help=f"PostgreSQL server that they are on (default: ${options.DATABASE_VARIABLE})",
    )
    parser.add_argument("--yes", action="store_true", help="drop those whose run is gone, and that nobody uses")
    options.add_output(parser)


def _server(given: ServerOptions) -> "PersistentServer":
    from placebench.runtime.postgres.persistent_server import PersistentServer, state_folder

    return PersistentServer((given.dir or state_folder()).resolve())


def _start(given: ServerOptions) -> int:
    server = _server(given)
    started = server.start()
    say(f"PostgreSQL {'started' if started else 'is running already'} in {server.folder}")
    _emit_url(given, server, started=started)
    return 0


def _url(given: ServerOptions) -> int:
    server = _server(given)
    _emit_url(given, server)
    return 0


def _stop(given: ServerOptions) -> int:
    server = _server(given)
    stopped = server.stop()
    removed = given.remove and server.remove()
    fate = "; its data is removed" if removed else ""
    say(f"PostgreSQL {'stopped' if stopped else 'was not running'} in {server.folder}{fate}")
    if given.output.json:
        print_json({"directory": str(server.folder), "stopped": stopped, "removed": removed})
    return 0


def _clean(given: CleanOptions) -> int:
    from placebench.runtime.postgres import normalise_url
    from placebench.runtime.postgres.scratch import drop_leftovers, find_leftovers

    url = normalise_url(options.database_url(given.server, what="server"))
    found = find_leftovers(url)
    problems = drop_leftovers(url, found) if given.yes else {}
    dropped = {each.name for each in found if given.yes and each.state == "left"} - problems.keys()
    if given.output.json or found:
        emit(
            given.output,
            text=lambda: "\n".join(_line(each, dropped=each.name in dropped) for each in found),
            document=lambda: {"databases": [{**asdict(each), "dropped": each.name in dropped} for each in found]},
        )
    left = sum(each.state == "left" for each in found)
    say(f"{len(found)} scratch databases, {left} left by runs that are gone, {len(dropped)} dropped")
    if problems:
        raise DatabaseError(f"{len(problems)} could not be dropped: {'; '.join(problems.values())}")
    return 0


def _line(found: "ScratchDatabase", *, dropped: bool) -> str:
    mark = found.mark
    made = f"made {mark.created_at} by process {mark.pid} on {mark.host}" if mark else "its creator was killed"
    return f"{'dropped' if dropped else found.state:<9}{found.name}  {made}"


def _emit_url(given: ServerOptions, server: "PersistentServer", **result: Any) -> None:
    """Print both URLs as JSON, or else one alone, so that `DATABASE_URL=$(placebench db start)` works."""
    from placebench.runtime.postgres.connection import plain_url, sqlalchemy_url

    url = server.url()
    urls = {"url": plain_url(url), "sqlalchemy_url": sqlalchemy_url(url)}
    if given.output.json:
        print_json({"directory": str(server.folder), **urls, **result})
    else:
        print_result(urls["sqlalchemy_url" if given.sqlalchemy else "url"])


_WHY_LINUX = "keeps its PostgreSQL by what only Linux has"
COMMANDS: dict[str, Command[Any]] = {
    "db start": Command(_configure_url, _start, options=ServerOptions, needs_linux=_WHY_LINUX),
    "db stop": Command(_configure_stop, _stop, options=ServerOptions, needs_linux=_WHY_LINUX),
    "db url": Command(_configure_url, _url, options=ServerOptions, needs_linux=_WHY_LINUX),
    "db clean": Command(_configure_clean, _clean, options=CleanOptions, needs_linux=_WHY_LINUX),
}
