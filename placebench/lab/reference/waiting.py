"""The reference service on a slow database: `application`, made from the environment as in `wsgi.py`.

    PLACEBENCH_WAIT_S      seconds that the database sleeps before each response; default "0.25"
    PLACEBENCH_WAIT_PATH   only before responses to paths that begin so; default "/"

Each such request except `GET /` first executes `SELECT pg_sleep(:seconds)` in autocommit, one round trip, on a
connection of a second pool. The wait represents work of the database server that no client can shorten.
"""

import os
from collections.abc import Iterable
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from sqlalchemy import Engine, text

from placebench.lab.reference.deployment import make_application, make_engine

_DEFAULT_WAIT_S: Final = "0.25"
_SLEEP: Final = text("SELECT pg_sleep(:seconds)")


def _delay_requests(app: WSGIApplication, engine: Engine, wait_s: float, prefix: str) -> WSGIApplication:
    """Return the application with a wait of *wait_s* seconds in the database before each request below *prefix*.

    `GET /` never waits.
    """
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")

    def waited(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/" and environ["PATH_INFO"].startswith(prefix):
            with autocommit.connect() as connection:
                connection.execute(_SLEEP, {"seconds": wait_s})
        return app(environ, start_response)

    return waited


application = _delay_requests(
    make_application(os.environ),
    make_engine(os.environ),
    float(os.environ.get("PLACEBENCH_WAIT_S") or _DEFAULT_WAIT_S),
    os.environ.get("PLACEBENCH_WAIT_PATH") or "/",
)
