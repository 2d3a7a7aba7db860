"""`placebench serve`: the reference service under uWSGI in the foreground, until Ctrl-C or SIGTERM."""

import json
import os
import signal
import threading
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from placebench.commands import values
from placebench.commands.console import interrupts, leave_closed_streams, print_result, say
from placebench.errors import DatabaseError, ServerError
from placebench.paths import check_writable, make_folder

if TYPE_CHECKING:
    from placebench.reference.variants import ReferenceVariant
    from placebench.runtime.wsgi_servers import RunningServer

HELP = "serve a seeded database under uWSGI, in the foreground"
_VARIABLE = "PLACEBENCH_DATABASE_URL"
_LOOK_EVERY_S = 0.5


def configure(parser: ArgumentParser) -> None:
    """The options of `serve`."""
    parser.add_argument("--db", type=values.text, metavar="URL", help=f"the database, seeded (default: ${_VARIABLE})")
    parser.add_argument(
        "--variant",
        metavar="V",
        help="how candidates are found (default: cached, never stale for writers that fire the change log's triggers;"
        " without a change log dedup)",
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="default: 127.0.0.1, this machine alone")
    parser.add_argument(
        "--port", type=values.whole(0, 65_535), default=8000, metavar="P", help="0: a free one (default: 8000)"
    )
    parser.add_argument(
        "--processes", type=values.workers, metavar="N", help="worker processes (default: the variant's, or 1)"
    )
    parser.add_argument(
        "--threads", type=values.workers, metavar="M", help="threads in each of them (default: the variant's, or 1)"
    )
    parser.add_argument("--log", type=values.path, metavar="FILE", help="keep uWSGI's log there")
    parser.add_argument(
        "--telemetry",
        type=values.path,
        default=os.environ.get("PLACEBENCH_TELEMETRY") or None,
        metavar="DIR",
        help="durations and figures, a file a worker (default: $PLACEBENCH_TELEMETRY)",
    )
    parser.add_argument("--statements", action="store_true", help="with --telemetry: each statement too")
    parser.add_argument("--json", action="store_true", help="when ready, one line of JSON on stdout")


def run(arguments: Namespace) -> int:
    """Serve until told to stop; a server or worker that dies ends it with the end of uWSGI's log."""
    from placebench.measure.wait_events import sample_wait_events
    from placebench.reference.variants import variant
    from placebench.runtime.wsgi_servers import ServerSpec, serve

    if arguments.statements and not arguments.telemetry:
        raise ServerError("--statements without --telemetry: name the folder that they go to with --telemetry DIR")
    if arguments.telemetry:
        make_folder(arguments.telemetry)
    if arguments.log:
        check_writable(arguments.log)
    chosen = variant(arguments.variant or _default(arguments.db or os.environ.get(_VARIABLE)))
    processes, threads = chosen.worker.workers or (1, 1)
    spec = ServerSpec(
        database_url=_seeded(arguments.db or os.environ.get(_VARIABLE), chosen),
        variant=chosen.name,
        host=arguments.host,
        port=arguments.port,
        processes=processes if arguments.processes is None else arguments.processes,
        threads=threads if arguments.threads is None else arguments.threads,
        log=arguments.log,
        telemetry=arguments.telemetry,
        environment={"PLACEBENCH_PROFILE": "light"} if arguments.statements else {},
    )
    _complete(spec.database_url)
    with serve(spec) as server, sample_wait_events(spec.database_url, arguments.telemetry):
        told_to_stop = _listen()
        say(f"{spec.variant} answers at {server.url}; Ctrl-C stops it")
        if arguments.json:
            print_result(json.dumps({"url": server.url, "pid": server.pid, "variant": spec.variant}))
        _watch(server, told_to_stop)
    return 0


def _listen() -> threading.Event:
    """An event that each of `interrupts` sets; a second one changes nothing while requests in flight are answered."""
    told_to_stop = threading.Event()

    def stop(*_: object) -> None:
        leave_closed_streams()
        told_to_stop.set()

    for number in interrupts():
        signal.signal(number, stop)
    return told_to_stop


def _watch(server: "RunningServer", told_to_stop: threading.Event) -> None:
    while not told_to_stop.wait(_LOOK_EVERY_S):
        server.check()


def _complete(url: str) -> None:
    """Add the standard names that are missing, as Placement does when it starts; say what clients will miss."""
    from sqlalchemy import func, select

    from placebench.seeding import add_standard_names
    from placebench.seeding.connection import exclusive_connection
    from placebench.tables import resource_providers

    try:
        with exclusive_connection(url) as connection, connection.begin():
            add_standard_names(connection)
    except DatabaseError as error:
        say(f"standard traits or resource classes are missing and cannot be added; requests with them get 400: {error}")
    with exclusive_connection(url) as connection:
        rootless = resource_providers.c.root_provider_id.is_(None)
        count = connection.scalar(select(func.count()).select_from(resource_providers).where(rootless))
    if count:
        say(
            f"resource providers without a root_provider_id, which no response shows: {count}; Placement's"
            " `placement-manage db online_data_migrations` gives them one"
        )


def _default(url: str | None) -> str:
    """The fastest variant that this database can have, never stale for writers that fire the change log's triggers."""
    from placebench.seeding import has_change_log

    return "cached" if not url or has_change_log(url) else "dedup"


def _seeded(url: str | None, chosen: "ReferenceVariant") -> str:
    """The normalised *url* after a look that all is there which the variant reads: `serve` never migrates."""
    from sqlalchemy import inspect

    from placebench.reference.candidates.cached.change_log import NO_CHANGE_LOG
    from placebench.runtime.postgres import normalise_url, open_connection
    from placebench.seeding import applied_options, has_change_log
    from placebench.tables import resource_providers

    if not url:
        raise DatabaseError(f"which database? give --db postgresql://user:password@host/name, or set {_VARIABLE}")
    url = normalise_url(url)
    with open_connection(url) as connection:
        if not inspect(connection).has_table(resource_providers.name):
            raise DatabaseError("this database has no table resource_providers: run `placebench seed --db URL` first")
    if chosen.algorithm == "cached" and not has_change_log(url):
        raise DatabaseError(f"the variant cached: {NO_CHANGE_LOG}")
    for lacking in set(chosen.revisions) - (applied_options(url) if chosen.revisions else set()):
        raise DatabaseError(
            f"the variant {chosen.name} needs the revision {lacking}: run `placebench seed --option {lacking}` first"
        )
    return url
