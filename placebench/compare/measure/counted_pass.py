"""The counted passes: the statements, rows, round trips and garbage collections of one request, without timing.

`count_on_the_wire` counts all kinds of variants in the same way: pg_stat_statements counts statements and rows in the
variant's database, a counting link (placebench.runtime.network.link) counts round trips and bytes of each request. For
SQLite and MariaDB, statements and rows are those that the profiler sees in the application.
`count_requests` counts a variant of the reference service by the profiler's light mode.
"""

import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from itertools import chain, islice
from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from placebench.compare.keep.records import CountedPass, StatementCount, WirePass
from placebench.compare.load.client_process import Driven, responses_folder
from placebench.compare.load.load_run import responses_of
from placebench.compare.measure.passes import PassSetup
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.profiled_pass import (
    discard_recordings,
    fresh_log_folder,
    recording_names,
    wait_for_recordings,
    why_not_profiled,
    with_profiler,
)
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.http_request import get
from placebench.compare.what.variants import Variant
from placebench.errors import LoadError, NoTrafficError
from placebench.meters.opened_files import watch_opens
from placebench.profiler.requests.sampling import KEEP_FOR_COUNTS
from placebench.runtime.application_servers import serve
from placebench.runtime.network.link import Link, Traffic, open_database_link
from placebench.runtime.postgres import Server
from placebench.runtime.running_server import ServerSpec

_WARM_UP_REQUESTS = 2
_EXCEPTION = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$", re.MULTILINE)
_NO_TABLE = re.compile(r"no such table|relation \S+ does not exist|Table \S+ doesn't exist")
_SHOWN_LETTERS = 300
_HASH_SEED = 1
_KEPT_RECORDINGS = 200
"""Maximum number of recordings that the reference service keeps as files."""
_LATER_REQUESTS, _LATER_PART, _LATER_S = 800, 100, 3.0
"""The most requests after the counted ones whose statements are counted too, in parts, and about their time."""
_SLOW_STOP_S = 8.0
"""A server that takes longer to end is named: a run has some dozen starts."""
_COUNTED = """
SELECT coalesce(sum(calls), 0), coalesce(sum(rows), 0) FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = :database)
AND query !~* '^\\s*(begin|start transaction|commit|rollback)'
"""

_ON_TABLES = re.compile(r"\b(?:from|into|update)\s", re.IGNORECASE)
_CATALOGUE = re.compile(r"\bpg_|\binformation_schema\b|\bhashtextextended\b", re.IGNORECASE)
_EACH = """
SELECT query, sum(calls), sum(rows), sum(total_exec_time) / 1000 FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = :database)
AND query !~* '^\\s*(begin|start transaction|commit|rollback)'
GROUP BY query
"""


class Statistics:
    """Reads PostgreSQL's cumulative counts of the statements in a database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, database: str) -> tuple[int, int]:
        """Return the numbers of statements and of rows in *database* so far; 1 round trip."""
        statements, rows = self._connection.execute(text(_COUNTED), {"database": database}).one()
        return int(statements), int(rows)

    def on_tables(self, database: str) -> float:
        """Return the number of calls of statements on tables; 1 round trip."""
        return _calls_on_tables(self.each(database))

    def each(self, database: str) -> dict[str, tuple[float, float, float]]:
        """Return calls, rows and seconds in the server of each statement, by its text without values; 1 round trip."""
        counted = self._connection.execute(text(_EACH), {"database": database})
        return {sql: (float(calls), float(rows), float(seconds)) for sql, calls, rows, seconds in counted}


@dataclass(frozen=True)
class _Request:
    """The counts of one request, averaged over a cycle of requests."""

    statements: float | None
    rows: float | None
    round_trips: float | None
    bytes_sent: float | None
    bytes_received: float | None
    body_bytes: float
    requests: int


@contextmanager
def open_statistics(server: Server, database: str) -> Iterator[Statistics | None]:
    """Yield the pg_stat_statements of *server*, read from *database*, a database that is made for that.

    Runs CREATE EXTENSION pg_stat_statements; each reading is one round trip. Yields None if the server does not have
    the extension, or does not let our role read it.
    """
    server.create_database(database)
    engine = create_engine(server.admin_url(database), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        statistics: Statistics | None = Statistics(connection)
        try:
            connection.execute(text("CREATE EXTENSION pg_stat_statements"))
            connection.execute(text(_COUNTED), {"database": ""})
        except SQLAlchemyError:
            statistics = None
        yield statistics
    server.drop_database(database)


class _Counters:
    """The counters of one variant: a link to its server and PostgreSQL's statistics, or neither."""

    def __init__(self, database_url: str, link: Link | None, read: Statistics | None) -> None:
        self._link, self._read = link, read
        self._database = str(make_url(database_url).database) if link else ""
        self.url = link.url if link else database_url
        self._begun = self.each()
        """The counts at the moment before the service was started."""

    def traffic(self) -> Traffic | None:
        """Return the traffic so far; None without a link."""
        return self._link.traffic() if self._link else None

    def traffic_since(self, before: Traffic | None) -> Traffic | None:
        now = self.traffic()
        return None if now is None or before is None else now.since(before)

    def work(self) -> tuple[int, int] | None:
        """Return the numbers of statements and of rows so far; None if they are not counted."""
        return self._read(self._database) if self._read else None

    def each(self) -> dict[str, tuple[float, float, float]]:
        """Return the calls, rows and seconds of each statement so far."""
        return self._read.each(self._database) if self._read else {}

    def table_statements(
        self, warm: dict[str, tuple[float, float, float]], later: list[StatementCount], requests: int
    ) -> tuple[float, float] | tuple[None, None]:
        """Return `table_statements` and `first_statements` of a `WirePass`; None for both if nothing is counted.

        warm: the counts of `each` after the first *requests* requests. later: the statements of one later request.
        """
        if self.work() is None:
            return None, None
        sent, earlier = _calls_on_tables(warm), _calls_on_tables(self._begun)
        each_later = sum(each.calls for each in later if is_on_tables(each.sql))
        return each_later, max(0.0, sent - earlier - requests * each_later)


class _Recordings:
    """The profiler's recordings in the application, for a database without statement counts."""

    def __init__(self, variant: Variant, folder: Path | None) -> None:
        """folder: where the recordings are saved; None: nothing is recorded."""
        self._variant, self._folder = variant, folder

    def around(self, spec: ServerSpec) -> ServerSpec:
        """Return *spec* with the profiler wrapped around the service."""
        return with_profiler(self._variant, spec, self._folder, "light") if self._folder else spec

    def fill(self, counted: list[_Request], warm: Driven, names: Collection[str]) -> list[_Request]:
        """Add statements and rows to the counted cycles, if the profiler saw any statement in them.

        names: of all requests until now. Those of a script may differ from cycle to cycle.
        """
        number = sum(each.requests for each in counted)
        kept = _KEPT_RECORDINGS if self._variant.ours else KEEP_FOR_COUNTS.count
        if self._folder is None or len(warm.wall_s) + number > kept:
            return counted
        found = wait_for_recordings(self._folder, names, len(warm.wall_s) + number)[-number:]
        each = iter([recording.statements for _, recording in found])
        cycles = [list(chain.from_iterable(islice(each, request.requests))) for request in counted]
        if not any(cycles):  # not run by SQLAlchemy: their number is unknown, not 0
            return counted
        return [
            replace(
                request,
                statements=len(statements) / request.requests,
                rows=sum(statement.row_count or 0 for statement in statements) / request.requests,
            )
            for request, statements in zip(counted, cycles, strict=True)
        ]

    def later(self, drive: Callable[[int], Driven], counted: list[_Request], names: list[str]) -> float | None:
        """Return the statements per request after many more requests, as the replicates send them; None if unknown.

        drive: sends the cycle of requests that many times. Stops at the first part with another number than before.
        """
        if self._folder is None or self._variant.ours or not counted or counted[0].statements is None:
            return None
        usual = sum(each.statements or 0.0 for each in counted) / len(counted)
        cycle, sent = counted[0].requests, 0
        discard_recordings(self._folder, names, 0)
        began = time.monotonic()
        while sent < _LATER_REQUESTS and time.monotonic() - began < _LATER_S:
            driven = drive(max(1, _LATER_PART // cycle)).check()
            found = wait_for_recordings(self._folder, names, len(driven.wall_s))
            sent += len(found)
            seen = sum(len(recording.statements) for _, recording in found[-cycle:]) / cycle
            discard_recordings(self._folder, names, 0)
            if seen != usual:
                return seen
        return usual


@contextmanager
def _open_recordings(variant: Variant, database_url: str, folder: Path) -> Iterator[_Recordings]:
    if not database_url or database_url.startswith("postgresql") or variant.command or why_not_profiled(variant):
        yield _Recordings(variant, None)
        return
    yield _Recordings(variant, fresh_log_folder(folder))
    shutil.rmtree(folder)


@contextmanager
def _open_counters(database_url: str, read: Statistics | None, log: Path) -> Iterator[_Counters]:
    if not database_url or database_url.startswith("sqlite"):
        yield _Counters(database_url, None, None)
        return
    with open_database_link(database_url, log=log / "link.log") as link:
        yield _Counters(database_url, link, read)


def count_on_the_wire(
    prepared: PreparedVariants,
    name: str,
    *,
    requests: int,
    read: Statistics | None,
    same: SameResponses | None,
    note: Callable[[str], object],
) -> WirePass:
    """Send *requests* cycles of requests to the variant *name*, count what they cause, and compare the responses.

    note: called with what the user should know about the responses. The counts are saved as wire-<name>.json. Raises
    ServerError if the variant does not start, LoadError for an unexpected status, NoTrafficError if the variant never
    connected to its database.
    """
    variant, database_url = prepared.named[name], prepared.databases[name]
    log = prepared.folder / "log"
    server_log = log / f"server-{name}.log"
    workload, folder = prepared.workload_of(name), responses_folder(prepared.folder)
    with (
        failures_with_log(name, server_log),
        prepared.client() as client,
        _open_counters(database_url, read, log) as counters,
        _watch_file(database_url) as is_opened,
        _open_recordings(variant, database_url, log / f"counted-{name}") as recordings,
        serve(recordings.around(variant.spec(counters.url, hash_seed=_HASH_SEED, log=server_log))) as server,
    ):
        first = 0
        if same is not None and workload.rules.kind:
            reads = (call.path for call in workload.calls if call.method == "GET")
            first = sum(same.request(name, path, server.url) for path in reads)
        times = max(_WARM_UP_REQUESTS, -(-prepared.warmup // max(1, len(workload.cycle))))
        warm = client.drive(server.url, workload, times=times, login=True).check()
        if same is not None:
            same.check_calls(name, warm.calls)
            same.check_all(name, warm.responses, folder)
        counted, before, names = [], counters.each(), set(warm.names)
        for _ in range(requests):
            traffic, work = counters.traffic(), counters.work()
            driven = client.drive(server.url, workload).check()
            names.update(driven.names)
            passed = counters.traffic_since(traffic)
            counted.append(_request(passed, work, counters.work(), driven))
            if same is not None:
                same.check_all(name, driven.responses, folder)
        by_statement = _by_statement(before, counters.each(), sum(each.requests for each in counted))
        later, kept = counters.table_statements(before, by_statement, first + len(warm.wall_s))
        counted = recordings.fill(counted, warm, names)
        timed = None
        if not prepared.workload.writes and not workload.script:
            timed = recordings.later(lambda times: client.drive(server.url, workload, times=times), counted, warm.names)
        if timed is not None and later is None:
            later = sum(each.statements or 0.0 for each in counted) / len(counted)
        if warm.redirects == len(warm.wall_s):
            note(f"{name} redirects every request, which is what is measured; what they lead to is not requested")
        traffic = counters.traffic()
        if variant.uses_database and not is_opened() and not (traffic and traffic.bytes_sent):
            raise no_traffic(name)
        ended = time.monotonic()
    if (stopped_s := time.monotonic() - ended) > _SLOW_STOP_S:
        note(
            f"{name} took {stopped_s:.0f} s to end, which each of its starts will: a thread or a process that the "
            "application began goes on; let it be a daemon, or end"
        )
    made = replace(
        _wire_pass(name, counted),
        by_statement=by_statement,
        table_statements=later,
        first_statements=kept,
        timed_statements=timed,
    )
    if made.statements is None and database_url:
        made = replace(made, uncounted=_why_uncounted(variant, database_url))
    made.save(prepared.folder / f"wire-{name}.json")
    return made


def _why_uncounted(variant: Variant, database_url: str) -> str:
    """Return why the statements of a variant with a database were not counted."""
    if database_url.startswith("postgresql"):
        return "the PostgreSQL server has no pg_stat_statements that its role may read"
    if variant.command:
        return "without PostgreSQL the profiler counts them, which does not enter a command; app = 'MODULE:APP' counts"
    return why_not_profiled(variant) or "the profiler saw none: expected SQLAlchemy or a driver that it knows"


def _wire_pass(variant: str, counted: Sequence[_Request]) -> WirePass:
    """Gather the counts of all requests, field by field; unknown counts are left out."""
    return WirePass(
        variant=variant,
        statements=[each.statements for each in counted if each.statements is not None] or None,
        rows=[each.rows for each in counted if each.rows is not None] or None,
        round_trips=[each.round_trips for each in counted if each.round_trips is not None],
        bytes_sent=[each.bytes_sent for each in counted if each.bytes_sent is not None],
        bytes_received=[each.bytes_received for each in counted if each.bytes_received is not None],
        body_bytes=[each.body_bytes for each in counted],
    )


def no_traffic(name: str) -> NoTrafficError:
    """Return the error for a variant that does not use the database of its copy of the data."""
    return NoTrafficError(
        f"{name} never connected to the database that it was given: let it read DATABASE_URL, name its "
        'variable with env = { NAME = "{database_url}" }, or say database = "none"'
    )


@contextmanager
def failures_with_log(name: str, log: Path) -> Iterator[None]:
    """Add the variant's name, the first exception in its log, and the log's path to the failure of a request."""
    try:
        yield
    except LoadError as error:
        raised = _EXCEPTION.search(log.read_text(errors="replace") if log.exists() else "")
        first = f"; the first exception in its log: {raised[1][:_SHOWN_LETTERS]}" if raised else ""
        if raised and _NO_TABLE.search(raised[1]):
            first += (
                " (each variant has a copy of the database that setup = 'COMMAND' or template_db = 'URL' made, changed "
                "by its own migrations with migrate = 'COMMAND')"
            )
        raise type(error)(f"{name}: {error}{first}; its log: {log}") from error


def _request(
    traffic: Traffic | None, before: tuple[int, int] | None, after: tuple[int, int] | None, driven: Driven
) -> _Request:
    requests = len(driven.wall_s)
    work = [None, None] if before is None or after is None else [after[at] - before[at] for at in (0, 1)]
    statements, rows = (None if each is None else each / requests for each in work)
    passed = [None] * 3 if traffic is None else [traffic.round_trips, traffic.bytes_sent, traffic.bytes_received]
    round_trips, sent, received = (None if each is None else each / requests for each in passed)
    return _Request(statements, rows, round_trips, sent, received, driven.body_bytes / requests, requests)


@contextmanager
def count_while_timed(prepared: PreparedVariants, read: Mapping[str, Statistics | None]) -> Iterator[None]:
    """Count the statements on tables in the replicates of the `with` block, and add them to wire-<name>.json.

    read: the statistics of each variant's server, by the variant's name.
    """
    for name, statistics in read.items():
        if statistics is not None:
            database = str(make_url(prepared.databases[name]).database)
            prepared.statements.read[name] = partial(statistics.on_tables, database)
    yield
    for name in prepared.statements.requests:
        path = prepared.folder / f"wire-{name}.json"
        if path.is_file():  # a control has none of its own
            replace(WirePass.load(path), timed_statements=prepared.statements.per_request(name)).save(path)


def _calls_on_tables(each: dict[str, tuple[float, float, float]]) -> float:
    return sum(calls for sql, (calls, *_) in each.items() if is_on_tables(sql))


def is_on_tables(sql: str) -> bool:
    """Return whether a statement works on tables, unlike a driver's catalogue queries and our digests of tables."""
    return bool(_ON_TABLES.search(sql)) and not _CATALOGUE.search(sql)


def _by_statement(
    before: dict[str, tuple[float, float, float]], after: dict[str, tuple[float, float, float]], requests: int
) -> list[StatementCount]:
    """Return the mean counts per request of each statement, the most expensive first."""
    none = (0.0, 0.0, 0.0)
    took = {
        sql: [now - then for now, then in zip(sums, before.get(sql, none), strict=True)] for sql, sums in after.items()
    }
    made = [
        StatementCount(" ".join(sql.split()), calls / requests, rows / requests, seconds / requests)
        for sql, (calls, rows, seconds) in took.items()
        if calls > 0
    ]
    return sorted(made, key=lambda each: each.exec_s, reverse=True)


@contextmanager
def _watch_file(database_url: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the SQLite database was opened in the `with` block, seen by inotify(7).

    Without a database it always returns True; for a database that is not a SQLite file, always False.
    """
    if not database_url.startswith("sqlite"):
        yield lambda: not database_url
        return
    path = str(make_url(database_url).database)
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(watch_opens([path]))
        except OSError:  # the user's limit of watches is reached, which is not the variant's fault
            yield lambda: True
        else:
            yield lambda: bool(opened())


def count_requests(setup: PassSetup, name: str, *, requests: int, variant: str | None = None) -> CountedPass:
    """Count statements, rows and collections of *requests* requests in a row; saved as counted-<name>.json.

    variant: the name of the served variant; None: *name*.
    """
    recordings = fresh_log_folder(setup.folder / "log" / f"counted-{name}")
    names = recording_names(setup.request)
    profile = {"PLACEBENCH_PROFILE": "light", "PLACEBENCH_PROFILE_DIR": str(recordings)}
    with setup.serve(variant or name, setup.part(f"{name}-counted"), **profile) as server:
        setup.warm_up(server)
        discard_recordings(recordings, names, setup.warm_up_requests)
        with responses_of(server):
            replies = [get(server.url, setup.request) for _ in range(requests)]
    if wrong := [reply.status for reply in replies if reply.status != HTTPStatus.OK]:
        raise LoadError(f"{server.url}{setup.request} returned {wrong[0]}, expected 200")
    found = [recording for _, recording in wait_for_recordings(recordings, names)]
    counted = CountedPass(
        variant=name,
        requests=len(found),
        statements=sum(len(each.statements) for each in found),
        rows=sum(statement.row_count or 0 for each in found for statement in each.statements),
        body_bytes=sum(len(reply.body) for reply in replies),
        elapsed_s=sum(each.elapsed_s for each in found),
        sql_s=sum(
            (each.execute_s or 0.0) + (each.fetch_s or 0.0) for each in (recording.summary() for recording in found)
        ),
        gc_s=sum(each.gc_s or 0.0 for each in found),
        gc_collections=sum(each.gc_collections or 0 for each in found),
        gc_s_each=[each.gc_s or 0.0 for each in found],
    )
    counted.save(setup.folder / f"counted-{name}.json")
    shutil.rmtree(recordings)
    return counted
