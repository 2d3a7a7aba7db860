"""Requests that do one kind of work each, to compare threads, processes and event loops: `application`.

The application is made from environment variables; if the variant's driver is asynchronous, it is an ASGI application.

    PLACEBENCH_WORKLOAD        "compute": GET /compute/N runs about 5 ms of pure Python, without input or output
                               "state": GET /state/N reads the Nth fiftieth of a state that was loaded before the fork
                               "database": GET /database/N waits 20 ms for pg_sleep in PostgreSQL
                               "network": GET /network/N waits for one line from another service
                               "subprocess": GET /subprocess/N starts a program that reads a temporary file
    PLACEBENCH_UPSTREAM        HOST:PORT of the service of "network", which sends a line to each client that connects
    PLACEBENCH_VARIANT         the variant whose driver and interface (WSGI or ASGI) are used; default "tuned"
    PLACEBENCH_STATE_RECORDS   the number of records in the state, some 500 bytes each; default 200000, about 100 MB
    PLACEBENCH_FREEZE          "1": call gc.collect() and gc.freeze() after the state is loaded; default "0"

A response depends on its path only, so all workers must send equal responses.
"""

import asyncio
import gc
import hashlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import orjson
from sqlalchemy import Engine, text
from sqlalchemy.util import await_only

from placebench.errors import ServerError
from placebench.lab.reference.api.event_loop import EventLoopApplication
from placebench.lab.reference.deployment import make_engine
from placebench.lab.reference.domain.settings import read_choice
from placebench.lab.reference.variants import variant

PARTS: Final = 50
_DEFAULT_RECORDS: Final = "200000"
_STEPS: Final = 60_000
_MODULUS: Final = 2**31 - 1

_DATABASE_WAIT_S: Final = 0.02
_SLEEP: Final = text("SELECT pg_sleep(:seconds)")
_MAX_LINE_BYTES: Final = 64

_Compute = Callable[[int], object]


def workload(environment: Mapping[str, str], engine: Engine | None = None) -> WSGIApplication:
    """Return the WSGI application that these variables describe.

    Raises ServerError for the first variable that cannot be used.
    engine: the engine for the workload "database"; None: `make_engine` makes it if it is needed.
    """
    name = read_choice(environment, "PLACEBENCH_WORKLOAD", ("compute", "state", "database", "network", "subprocess"))
    make: Mapping[str, Callable[[], _Compute]] = {
        "compute": lambda: compute,
        "state": lambda: _state(environment),
        "database": lambda: _database(engine or make_engine(environment)),
        "network": lambda: _network(environment),
        "subprocess": lambda: _subprocess(_is_asynchronous(environment)),
    }
    function = make[name]()
    if read_choice(environment, "PLACEBENCH_FREEZE", ("0", "1")) == "1":
        gc.collect()
        gc.freeze()
    return _serve(function)


def compute(number: int) -> object:
    """Compute a long chain of random numbers (Park & Miller 1988) that starts at *number*, without reads or waits."""
    value = number + 1
    for _ in range(_STEPS):
        value = value * 16807 % _MODULUS
    return {"number": number, "value": value}


def _state(environment: Mapping[str, str]) -> _Compute:
    """Load the records and return a function that reads one of their `PARTS` parts.

    Reading an object writes its reference count, which un-shares its memory page after a fork.
    """
    text = environment.get("PLACEBENCH_STATE_RECORDS") or _DEFAULT_RECORDS
    if not (text.isascii() and text.isdigit() and int(text) >= PARTS):
        raise ServerError(f"PLACEBENCH_STATE_RECORDS: expected a number from {PARTS}, got {text!r}")
    records: list[dict[str, Any]] = [
        {"id": number, "name": f"record {number}", "tags": [str(number % 7)]} for number in range(int(text))
    ]
    size = len(records) // PARTS

    def read(number: int) -> object:
        begin = number % PARTS * size
        read = [(record["name"], tag) for record in records[begin : begin + size] for tag in record["tags"]]
        digest = hashlib.sha256(repr(read).encode()).hexdigest()
        return {"part": number % PARTS, "records": len(read), "digest": digest}

    return read


def _database(engine: Engine) -> _Compute:
    """Return a function that waits 20 ms for PostgreSQL in one round trip."""
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")

    def wait(number: int) -> object:
        with autocommit.connect() as connection:
            connection.execute(_SLEEP, {"seconds": _DATABASE_WAIT_S})
        return {"number": number}

    return wait


def _network(environment: Mapping[str, str]) -> _Compute:
    """Return a function that opens a connection to the other service and waits for the line that it sends."""
    upstream = environment.get("PLACEBENCH_UPSTREAM", "")
    host, _, port = upstream.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        raise ServerError(f"PLACEBENCH_UPSTREAM: expected HOST:PORT, got {upstream!r}")
    address, in_event_loop = (host, int(port)), _is_asynchronous(environment)

    def wait(number: int) -> object:
        if in_event_loop:
            line = await_only(_await_line(*address))
        else:
            with socket.create_connection(address) as connection, connection.makefile("rb") as lines:
                line = lines.readline(_MAX_LINE_BYTES)
        return {"number": number, "upstream": line.decode()}

    return wait


async def _await_line(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, limit=_MAX_LINE_BYTES)
    try:
        return await reader.readline()
    finally:
        writer.close()


def _subprocess(in_event_loop: bool) -> _Compute:
    """Return a function that writes a temporary file, runs `cat` on it, and reads the output and exit code."""

    def run(number: int) -> object:
        with tempfile.NamedTemporaryFile() as file:
            file.write(str(number).encode())
            file.flush()
            command = ("cat", file.name)
            if in_event_loop:
                printed = await_only(_await_program(*command))
            else:
                printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        return {"number": number, "printed": printed.decode()}

    return run


async def _await_program(*command: str) -> bytes:
    program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    printed, _ = await program.communicate()
    if program.returncode:
        raise subprocess.CalledProcessError(program.returncode, command)
    return printed


def _is_asynchronous(environment: Mapping[str, str]) -> bool:
    return variant(environment.get("PLACEBENCH_VARIANT") or "tuned").interface == "asgi"


def _serve(function: _Compute) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        number = environ["PATH_INFO"].rpartition("/")[2]
        body = orjson.dumps(function(int(number)) if number.isascii() and number.isdigit() else {})
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return application


def _load(environment: Mapping[str, str]) -> WSGIApplication | EventLoopApplication:
    if not _is_asynchronous(environment):
        return workload(environment)
    engine = make_engine(environment)
    return EventLoopApplication(workload(environment, engine), engine)


application = _load(os.environ)
