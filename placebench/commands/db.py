"""`placebench db start|url|stop`: the embedded PostgreSQL by itself, outliving the command.

`placebench db clean`: the scratch databases that runs left on a server.
"""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from placebench.commands import values
from placebench.commands.console import print_json, print_result, say
from placebench.errors import DatabaseError

if TYPE_CHECKING:
    from placebench.runtime.postgres.persistent_server import PersistentServer
    from placebench.runtime.postgres.scratch import ScratchDatabase

HELP = "the embedded PostgreSQL by itself (start it, print its URL, stop it), and what runs left on a server"
_VARIABLE = "PLACEBENCH_DATABASE_URL"


def configure(parser: ArgumentParser) -> None:
    """Three actions, each on the server of one folder, and one on a server that a URL names."""
    every = ArgumentParser(add_help=False)
    every.add_argument("--json", action="store_true", help="print the result as JSON")
    common = ArgumentParser(add_help=False, parents=[every])
    common.add_argument(
        "--dir", type=values.path, help="the folder of the server (default: one in the user's state folder)"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="start|url|stop|clean")
    actions.add_parser("start", parents=[common], help="start it, if it does not run, and print its URL")
    actions.add_parser("url", parents=[common], help="print the URL of the running server")
    stop = actions.add_parser("stop", parents=[common], help="stop it; its data stays")
    stop.add_argument("--remove", action="store_true", help="remove its data too")
    clean = actions.add_parser("clean", parents=[every], help="list the scratch databases of runs; drop those left")
    clean.add_argument("--server", metavar="URL", help=f"the PostgreSQL that they are on (default: ${_VARIABLE})")
    clean.add_argument("--yes", action="store_true", help="drop those whose run is gone, and that nobody uses")


def run(arguments: Namespace) -> int:
    """Do the action; raises DatabaseError when it cannot be done."""
    from placebench.runtime.postgres.persistent_server import PersistentServer, state_folder

    if arguments.action == "clean":
        return _clean(arguments)
    server = PersistentServer((arguments.dir or state_folder()).resolve())
    if arguments.action == "start":
        started = server.start()
        say(f"PostgreSQL {'started' if started else 'runs already'} in {server.folder}")
        _print(arguments, server, url=server.url(), started=started)
    elif arguments.action == "url":
        _print(arguments, server, url=server.url())
    else:
        _stop(arguments, server)
    return 0


def _stop(arguments: Namespace, server: "PersistentServer") -> None:
    stopped = server.stop()
    removed = arguments.remove and server.remove()
    fate = "; its data is removed" if removed else ""
    say(f"PostgreSQL {'stopped' if stopped else 'did not run'} in {server.folder}{fate}")
    _print(arguments, server, stopped=stopped, removed=removed)


def _clean(arguments: Namespace) -> int:
    from placebench.runtime.postgres import normalise_url, open_connection
    from placebench.runtime.postgres.scratch import drop_leftovers, scratch_databases

    if not (named := arguments.server or os.environ.get(_VARIABLE)):
        raise DatabaseError(f"which server? give --server postgresql://user:password@host/name, or set {_VARIABLE}")
    url = normalise_url(named)
    with open_connection(url) as connection:
        found = scratch_databases(connection)
    problems = drop_leftovers(url, found) if arguments.yes else {}
    dropped = {each.name for each in found if arguments.yes and each.state == "left"} - problems.keys()
    if arguments.json:
        print_json({"databases": [{**asdict(each), "dropped": each.name in dropped} for each in found]})
    elif found:
        print_result("\n".join(_line(each, dropped=each.name in dropped) for each in found))
    left = sum(each.state == "left" for each in found)
    say(f"{len(found)} scratch databases, {left} left by runs that are gone, {len(dropped)} dropped")
    if problems:
        raise DatabaseError(f"{len(problems)} could not be dropped: {'; '.join(problems.values())}")
    return 0


def _line(found: "ScratchDatabase", *, dropped: bool) -> str:
    mark = found.mark
    made = f"made {mark.created_at} by process {mark.pid} on {mark.host}" if mark else "its creator was killed"
    return f"{'dropped' if dropped else found.state:<9}{found.name}  {made}"


def _print(arguments: Namespace, server: "PersistentServer", **result: Any) -> None:
    """The result: all of it as JSON, or the URL alone, so that `URL=$(placebench db start)` works."""
    if arguments.json:
        print_json({"directory": str(server.folder), **result})
    elif "url" in result:
        print_result(result["url"])
