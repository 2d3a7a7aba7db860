"""The reference service on a database that takes its time: `application`, made from the environment like wsgi.py's.

    PLACEBENCH_WAIT_S   how long the database sleeps before each response; default "0.25"

The wait is one statement in autocommit, `SELECT pg_sleep(:seconds)`, and so one round trip, on a connection of its own
beside the request's; `GET /` does not wait. It represents work of the server that no client can make shorter.
"""

import os
from collections.abc import Iterable
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from sqlalchemy import Engine, text

from placebench.lab.reference.deployment import make_application, make_engine

_DEFAULT_WAIT_S: Final = "0.25"
_SLEEP: Final = text("SELECT pg_sleep(:seconds)")


def _delay_requests(app: WSGIApplication, engine: Engine, wait_s: float) -> WSGIApplication:
    """The application, each of its requests but `GET /` after *wait_s* seconds in the database of *engine*."""
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")

    def waited(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/":
            with autocommit.connect() as connection:
                connection.execute(_SLEEP, {"seconds": wait_s})
        return app(environ, start_response)

    return waited


application = _delay_requests(
    make_application(os.environ),
    make_engine(os.environ),
    float(os.environ.get("PLACEBENCH_WAIT_S") or _DEFAULT_WAIT_S),
)
