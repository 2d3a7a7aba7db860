"""`placebench lab serve`: run the reference service under uWSGI in the foreground, until Ctrl-C or SIGTERM."""

import json
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.interrupts import stop_event
from placebench.commands.output import print_result, say
from placebench.errors import DatabaseError, ServerError
from placebench.paths import check_writable, make_ignored_folder

if TYPE_CHECKING:
    from placebench.lab.reference.variants import ReferenceVariant

_CHECK_EVERY_S = 0.5
_HEALTH_TIMEOUT_S = 4
_CLIENT_TIMEOUT_S = 3  # for clients of all kinds; a load run waits longer for its own
_MODES = ("light", "full", "sampled", "external", "flame", "plans")


@dataclass(frozen=True)
class ServeOptions:
    """The options of `placebench lab serve`."""

    output: options.OutputOptions
    db: str | None
    variant: str | None
    host: str
    port: int
    health_port: int | None
    processes: int | None
    threads: int | None
    log: Path | None
    telemetry: Path | None
    statements: bool
    profile: Path | None
    mode: str | None


def _configure(parser: ArgumentParser) -> None:
    options.add_database(parser, f"seeded database (default: ${options.DATABASE_VARIABLE})")
    parser.add_argument(
        "--variant",
        metavar="V",
        help="variant (default: cached, never stale for writers that fire the change log's triggers; dedup where the "
        "database has no change log)",
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=options.whole(0, 65_535), default=8000, metavar="P", help="port; 0: a free one (default: 8000)"
    )
    parser.add_argument(
        "--health-port",
        type=options.whole(0, 65_535),
        metavar="P",
        help="port on which GET /health responds, also while all workers wait; 0: a free one (default: none)",
    )
    parser.add_argument(
        "--processes", type=options.worker_count, metavar="N", help="number of workers (default: the variant's, or 1)"
    )
    parser.add_argument(
        "--threads",
        type=options.worker_count,
        metavar="N",
        help="number of threads in each worker (default: the variant's, or 1)",
    )
    parser.add_argument("--log", type=options.path, metavar="FILE", help="file for uWSGI's log")
    options.add_telemetry(parser, "folder for durations and figures, a file per worker")
    parser.add_argument("--statements", action="store_true", help="with --telemetry: record each statement too")
    parser.add_argument(
        "--profile",
        type=options.path,
        metavar="DIR",
        help="record the first 200 requests of each worker there; `placebench profile show DIR` merges them",
    )
    parser.add_argument("--mode", choices=_MODES, help=f"with --profile: how much is recorded (default: {_MODES[2]})")
    options.add_output(parser)


def _run(given: ServeOptions) -> int:
    """Serve until a signal arrives; if the server or a worker dies, fail with the end of uWSGI's log."""
    from placebench.lab.inventory.seeding import has_change_log
    from placebench.lab.reference.variants import variant
    from placebench.lab.variants import serving
    from placebench.meters.wait_events import sample_wait_events
    from placebench.runtime.application_servers import serve
    from placebench.runtime.buffering_proxy import buffering_proxy
    from placebench.runtime.mariadb import mariadb_url
    from placebench.runtime.postgres import normalise_url
    from placebench.runtime.running_server import ServerSpec
    from placebench.runtime.uwsgi import stand_in

    profiled = _profiling(given)
    if given.telemetry:
        make_ignored_folder(given.telemetry)
    if given.log:
        check_writable(given.log)
    given_url = options.database_url(given.db)
    url = mariadb_url(given_url) or normalise_url(given_url)
    # The default is the fastest variant for this database that is never stale for writers that fire the change log's
    # triggers.
    name = given.variant
    if not name:
        name = "tuned" if not url.startswith("postgresql") else "cached" if has_change_log(url) else "dedup"
    chosen = variant(name)
    processes, threads = chosen.worker.workers
    spec = ServerSpec(
        database_url=_seeded(url, chosen),
        variant=chosen.name,
        **serving(chosen),
        host=given.host,
        port=given.port,
        processes=processes if given.processes is None else given.processes,
        threads=threads if given.threads is None else given.threads,
        log=given.log,
        telemetry=given.telemetry,
        environment=profiled,
        client_timeout_s=_CLIENT_TIMEOUT_S,
    )
    _complete(spec.database_url)
    if spec.server == "gunicorn":
        say(stand_in())
    # The threads of a WSGI server are kept from slow clients by a proxy; an event loop needs none.
    inner = replace(spec, host="127.0.0.1", port=0) if spec.interface == "wsgi" else spec
    with (
        serve(inner) as server,
        buffering_proxy(spec.host, spec.port, _address(server.url))
        if inner is not spec
        else nullcontext(server.url) as url,
        sample_wait_events(spec.database_url, given.telemetry),
        nullcontext()
        if given.health_port is None
        else health_server(given.host, given.health_port, server.check) as health_url,
    ):
        stopped = stop_event()
        health = f", and its health at {health_url}" if health_url else ""
        say(f"{spec.variant} is served at {url}{health}; Ctrl-C stops it")
        if given.output.json:
            ready = {"url": url, "pid": server.pid, "variant": spec.variant}
            print_result(json.dumps({**ready, "health_url": health_url} if health_url else ready))
        while not stopped.wait(_CHECK_EVERY_S):
            server.check()
    return 0


def _profiling(given: ServeOptions) -> dict[str, str]:
    """Return the variables by which the service records its requests, and make the folder of the recordings.

    Raises ServerError if an option lacks the one that it depends on, or if the folder has recordings already.
    """
    if given.statements and not given.telemetry:
        raise ServerError("--statements without --telemetry: name the folder that they go to with --telemetry DIR")
    if given.mode and not given.profile:
        raise ServerError("--mode without --profile: name the folder of the recordings with --profile DIR")
    if given.profile:
        if any(given.profile.glob("*.recording.json")):
            raise ServerError(
                f"{given.profile} has recordings already, which would be merged with new ones: name another"
            )
        folder = str(make_ignored_folder(given.profile).resolve())
        return {"PLACEBENCH_PROFILE": given.mode or _MODES[2], "PLACEBENCH_PROFILE_DIR": folder}
    return {"PLACEBENCH_PROFILE": "light"} if given.statements else {}


@contextmanager
def health_server(host: str, port: int, check: Callable[[], None]) -> Iterator[str]:
    """Serve GET /health in threads of this process, and yield its URL.

    The response is 200 while *check* raises no ServerError, and 503 otherwise. No worker takes part, so it also comes
    while all of them wait for a lock or a slow client. It says nothing about the database.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _HEALTH_TIMEOUT_S

        def do_GET(self) -> None:
            try:
                check()
                status, state = (200, "ok") if self.path == "/health" else (404, "unknown path: expected /health")
            except ServerError:
                status, state = 503, "the server or a worker has ended"
            body = json.dumps({"status": state}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: a health check comes every few seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ServerError(f"--health-port {port}: cannot listen on {host} ({error}); name another port") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(_CHECK_EVERY_S,), daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/health"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def _complete(url: str) -> None:
    """Add missing standard names, as Placement does at its start, and report what clients will miss."""
    from sqlalchemy import func, select

    from placebench.lab.inventory.seeding import add_standard_names
    from placebench.lab.inventory.seeding.connection import exclusive_connection
    from placebench.lab.inventory.tables import resource_providers

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


def _seeded(url: str, chosen: "ReferenceVariant") -> str:
    """Return *url* after checking that the database has all that the variant reads: `serve` never migrates."""
    from sqlalchemy import inspect

    from placebench.lab.inventory.seeding import applied_options, has_change_log, read_only_connection
    from placebench.lab.inventory.tables import resource_providers
    from placebench.lab.reference.store.change_log import NO_CHANGE_LOG

    if not (url.startswith("postgresql") or chosen.portable):
        raise DatabaseError(f"the variant {chosen.name} runs on PostgreSQL alone")
    with read_only_connection(url) as connection:
        if not inspect(connection).has_table(resource_providers.name):
            raise DatabaseError(
                "this database has no table resource_providers: run `placebench lab seed --db URL` first"
            )
    if chosen.needs_change_log and not has_change_log(url):
        raise DatabaseError(f"the variant {chosen.name}: {NO_CHANGE_LOG}")
    for lacking in set(chosen.revisions) - (applied_options(url) if chosen.revisions else set()):
        raise DatabaseError(
            f"the variant {chosen.name} needs the revision {lacking}: run `placebench lab seed --option {lacking}`"
        )
    return url


COMMANDS = {"lab serve": Command(_configure, _run, options=ServeOptions, needs_linux=STARTS_SERVERS)}
