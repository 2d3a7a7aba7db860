"""Wait events of PostgreSQL's backends, sampled four times a second into a telemetry file beside those of the workers.

`sample_wait_events` samples them. A sample does not measure time, but in the long run a wait is seen in proportion to
its duration, even if it is shorter than the time between two samples.
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
    """Sample the backends of this database inside the `with` block, on a separate connection; 1 round trip per sample.

    The connection is open before the block begins, so that a meter inside sees only the service's sessions begin.
    Figures `backends active running`, `backends active Lock:transactionid`, `backends idle Client:ClientRead` and so on
    go to *folder*. Nothing is sampled without a folder or without PostgreSQL, or after the server stops responding.
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
            telemeter.begin()  # so that there is a file even without a sample
            ready.set()
            while not stop.wait(_SAMPLE_EVERY_S):
                for name, count in read_waits(connection).items():
                    telemeter.figure(name, count)
    except DatabaseError:
        return  # the measurement itself reports it; only the figures end here
    finally:
        ready.set()


def read_waits(connection: Connection) -> dict[str, int]:
    """Return the number of backends by state and wait event; 1 round trip.

    A "running" backend waits for nothing that PostgreSQL knows of: it has a CPU, or waits for one.
    """
    seen: dict[str, int] = {}
    for state, kind, event, count in connection.execute(text(_SAMPLE), {"ours": APPLICATION_NAME}):
        waited_for = f"{kind}:{event}" if event else "running"
        name = f"backends {state or 'unknown'} {waited_for}"
        seen[name] = seen.get(name, 0) + int(count)
    return seen
