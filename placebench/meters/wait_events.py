"""What PostgreSQL's backends wait for, sampled four times a second into a file of telemetry beside the workers'.

`sample_wait_events` does it. A sample is no measurement of time: a wait that is shorter than the time between two
samples is seen as often as it lasts, in the long run.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, make_url, text

from placebench.errors import DatabaseError
from placebench.runtime.postgres import APPLICATION_NAME, open_connection
from placebench.telemetry import Telemeter

_SAMPLE_EVERY_S = 0.25
_SAMPLE = """
SELECT state, wait_event_type, wait_event, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> :ours
GROUP BY state, wait_event_type, wait_event
"""


@contextmanager
def sample_wait_events(database_url: str, folder: Path | None) -> Iterator[None]:
    """Sample the backends of this database inside the `with` block, on a connection of its own; 1 round trip each.

    The connection is there before the block begins, so that a meter inside it sees no session begin but the service's.
    Figures `backends active running`, `backends active Lock:transactionid`, `backends idle Client:ClientRead` and so on
    go to *folder*; None, or another database than PostgreSQL: nothing is done. A server that stops responding ends it.
    """
    if folder is None or make_url(database_url).get_backend_name() != "postgresql":
        yield
        return
    telemeter, ready, stop = Telemeter(folder, role="harness"), threading.Event(), threading.Event()
    arguments = (database_url, telemeter, ready, stop)
    thread = threading.Thread(target=_sample, args=arguments, name="backends", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        telemeter.close()


def _sample(database_url: str, telemeter: Telemeter, ready: threading.Event, stop: threading.Event) -> None:
    try:
        with open_connection(database_url) as connection:
            telemeter.begin()  # a file says that nothing was seen where there is no sample
            ready.set()
            while not stop.wait(_SAMPLE_EVERY_S):
                for name, count in read_waits(connection).items():
                    telemeter.figure(name, count)
    except DatabaseError:
        return  # whoever measures will say so; the figures end here
    finally:
        ready.set()


def read_waits(connection: Connection) -> dict[str, int]:
    """How many backends are in which state, waiting for what; 1 round trip.

    "running" waits for nothing that PostgreSQL knows of: it has a CPU, or wants one.
    """
    seen: dict[str, int] = {}
    for state, kind, event, count in connection.execute(text(_SAMPLE), {"ours": APPLICATION_NAME}):
        waited_for = f"{kind}:{event}" if event else "running"
        name = f"backends {state or 'unknown'} {waited_for}"
        seen[name] = seen.get(name, 0) + int(count)
    return seen
