"""How much of a request the database takes, as its client waits for it: one process of one variant; prints JSON.

    python sql_share.py DATABASE_URL REQUEST VARIANT REPEATS

The sums over the requests: seconds in all, in the driver (execute and fetch, which includes the network and PostgreSQL)
and in SQLAlchemy's compilation. The mode is light, which takes no samples and so slows nothing but the statements.
"""

import json
import sys

from request_cost import answered
from sqlalchemy import create_engine
from werkzeug.test import Client

from placebench import SqlProfiler
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.variants import variant

WARM_UP = 2


def main(url: str, request: str, name: str, repeats: int) -> None:
    """Record, and print the sums."""
    engine = create_engine(url)
    client = Client(make_app(engine, name))
    profiler = SqlProfiler(engine)
    variant(name).implementations.collector()
    for _ in range(WARM_UP):
        answered(client, request)
    seconds = {"elapsed_s": 0.0, "driver_s": 0.0, "compile_s": 0.0}
    for _ in range(repeats):
        with profiler.record("request", "light") as recording:
            answered(client, request)
        summary = recording.summary()
        assert summary.execute_s is not None
        assert summary.fetch_s is not None
        seconds["elapsed_s"] += summary.elapsed_s
        seconds["driver_s"] += summary.execute_s + summary.fetch_s
        seconds["compile_s"] += summary.compile_s or 0.0
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
