"""`placebench db start|url|stop`: the embedded PostgreSQL by itself, outliving the command."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from placebench.commands import values
from placebench.commands.console import print_json, print_result, say

if TYPE_CHECKING:
    from placebench.postgres.standing import StandingServer

HELP = "the embedded PostgreSQL by itself: start it, print its URL, stop it"


def configure(parser: ArgumentParser) -> None:
    """Three actions, each on the server of one folder."""
    common = ArgumentParser(add_help=False)
    common.add_argument(
        "--dir", type=values.path, help="the folder of the server (default: one in the user's state folder)"
    )
    common.add_argument("--json", action="store_true", help="print the result as JSON")
    actions = parser.add_subparsers(dest="action", required=True, metavar="start|url|stop")
    actions.add_parser("start", parents=[common], help="start it, if it does not run, and print its URL")
    actions.add_parser("url", parents=[common], help="print the URL of the running server")
    stop = actions.add_parser("stop", parents=[common], help="stop it; its data stays")
    stop.add_argument("--remove", action="store_true", help="remove its data too")


def run(arguments: Namespace) -> int:
    """Do the action; raises DatabaseError when it cannot be done."""
    from placebench.postgres.standing import StandingServer, state_folder

    server = StandingServer((arguments.dir or state_folder()).resolve())
    if arguments.action == "start":
        started = server.start()
        say(f"PostgreSQL {'started' if started else 'runs already'} in {server.folder}")
        _print(arguments, server, url=server.url(), started=started)
    elif arguments.action == "url":
        _print(arguments, server, url=server.url())
    else:
        _stop(arguments, server)
    return 0


def _stop(arguments: Namespace, server: "StandingServer") -> None:
    stopped = server.stop()
    removed = arguments.remove and server.remove()
    fate = "; its data is removed" if removed else ""
    say(f"PostgreSQL {'stopped' if stopped else 'did not run'} in {server.folder}{fate}")
    _print(arguments, server, stopped=stopped, removed=removed)


def _print(arguments: Namespace, server: "StandingServer", **result: Any) -> None:
    """The result: all of it as JSON, or the URL alone, so that `URL=$(placebench db start)` works."""
    if arguments.json:
        print_json({"directory": str(server.folder), **result})
    elif "url" in result:
        print_result(result["url"])
