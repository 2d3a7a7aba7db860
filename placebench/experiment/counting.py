"""The counted pass of a comparison: what one request asks of the database, for any program alike; never timed.

The key piece is `wire_pass`. Statements and rows are what pg_stat_statements counted for the arm's database, round
trips and bytes what passed over a counting link (placebench.experiment.link); each request is counted by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, NullPool, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from placebench.experiment.answers import ask
from placebench.experiment.interleaved import Arms
from placebench.experiment.link import Traffic, linked
from placebench.experiment.records import WirePass
from placebench.experiment.server import serve
from placebench.postgres import Server

_WARM_UP_REQUESTS = 2
_HASH_SEED = 1
_COUNTED = """
SELECT coalesce(sum(calls), 0), coalesce(sum(rows), 0) FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = :database)
AND query !~* '^\\s*(begin|start transaction|commit|rollback)'
"""

Statistics = Callable[[str], tuple[int, int] | None]
"""Statements and rows of a database so far, by its name; None where they are not counted."""


@dataclass(frozen=True)
class _Request:
    """What one request took."""

    statements: int | None
    rows: int | None
    traffic: Traffic
    body_bytes: int


@contextmanager
def statistics(server: Server, database: str) -> Iterator[Statistics]:
    """pg_stat_statements of *server*, read from *database*, one of ours with nothing else in it.

    CREATE EXTENSION pg_stat_statements; reading it is one round trip. On a server that has it not, or does not let our
    role see it, nothing is counted.
    """
    engine = create_engine(server.create_database(database), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        available = _available(connection)

        def counted(name: str) -> tuple[int, int] | None:
            if not available:
                return None
            statements, rows = connection.execute(text(_COUNTED), {"database": name}).one()
            return int(statements), int(rows)

        yield counted
    server.drop_database(database)


def wire_pass(arms: Arms, name: str, *, requests: int, read: Statistics, meet: Callable[[str, str], None]) -> WirePass:
    """Count *requests* requests of the arm *name*; *meet* is given its name and URL first.

    Saved as wire-<name>.json. Raises ServerError when the arm does not start, LoadError when it does not answer 200.
    """
    arm, database_url = arms.named[name], arms.databases[name]
    log = arms.folder / "log"
    request = arm.request or arms.request
    with (
        linked(database_url, log=log / "link.log") as link,
        serve(arm.spec(link.url, hash_seed=_HASH_SEED, log=log / f"uwsgi-{name}.log")) as server,
    ):
        meet(name, server.url)
        for _ in range(_WARM_UP_REQUESTS):
            ask(server.url, request)
        database = str(make_url(database_url).database)
        counted = []
        for _ in range(requests):
            traffic, work = link.traffic(), read(database)
            body = ask(server.url, request).body
            counted.append(_request(link.traffic().since(traffic), work, read(database), len(body)))
    made = _pass(name, counted)
    made.save(arms.folder / f"wire-{name}.json")
    return made


def _request(
    traffic: Traffic, before: tuple[int, int] | None, after: tuple[int, int] | None, body_bytes: int
) -> _Request:
    if before is None or after is None:
        return _Request(None, None, traffic, body_bytes)
    return _Request(after[0] - before[0], after[1] - before[1], traffic, body_bytes)


def _pass(name: str, counted: list[_Request]) -> WirePass:
    statements = [each.statements for each in counted if each.statements is not None]
    rows = [each.rows for each in counted if each.rows is not None]
    return WirePass(
        variant=name,
        statements=[float(each) for each in statements] or None,
        rows=[float(each) for each in rows] or None,
        round_trips=[float(each.traffic.round_trips) for each in counted],
        bytes_sent=[float(each.traffic.bytes_sent) for each in counted],
        bytes_received=[float(each.traffic.bytes_received) for each in counted],
        body_bytes=[float(each.body_bytes) for each in counted],
    )


def _available(connection: Connection) -> bool:
    try:
        connection.execute(text("CREATE EXTENSION pg_stat_statements"))
        connection.execute(text(_COUNTED), {"database": ""})
    except SQLAlchemyError:
        return False
    return True
