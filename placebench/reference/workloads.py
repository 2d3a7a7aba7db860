"""Two requests without a database, for the question of threads or forks: `application`, made from the environment.

    PLACEBENCH_WORKLOAD        "compute": GET /compute/N is pure Python, about 5 ms of it, and no input or output
                               "state": GET /state/N reads the Nth fiftieth of a state that was loaded before the fork
    PLACEBENCH_STATE_RECORDS   of the state, some 500 bytes each; default 200000, about 100 MB
    PLACEBENCH_FREEZE          "1": gc.collect(); gc.freeze() once it is loaded; default "0"

Each response follows from its path alone, so that every worker has to give the same one.
"""

import gc
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import orjson

from placebench.errors import ServerError
from placebench.reference.settings import read_choice

PARTS: Final = 50
_DEFAULT_RECORDS: Final = "200000"
_STEPS: Final = 60_000
_MODULUS: Final = 2**31 - 1

_Compute = Callable[[int], object]


def workload(environment: Mapping[str, str]) -> WSGIApplication:
    """The application that these variables describe; ServerError with the first that cannot be used."""
    name = read_choice(environment, "PLACEBENCH_WORKLOAD", ("compute", "state"))
    function = compute if name == "compute" else _state(environment)
    if read_choice(environment, "PLACEBENCH_FREEZE", ("0", "1")) == "1":
        gc.collect()
        gc.freeze()
    return _serve(function)


def compute(number: int) -> object:
    """A chain of numbers, each from the one before it (Park & Miller 1988): nothing to read, nothing to wait for."""
    value = number + 1
    for _ in range(_STEPS):
        value = value * 16807 % _MODULUS
    return {"number": number, "value": value}


def _state(environment: Mapping[str, str]) -> _Compute:
    """Reads a part of the records, all of them in PARTS requests; looking at a record writes its reference count."""
    text = environment.get("PLACEBENCH_STATE_RECORDS") or _DEFAULT_RECORDS
    if not (text.isascii() and text.isdigit() and int(text) >= PARTS):
        raise ServerError(f"PLACEBENCH_STATE_RECORDS: expected a number from {PARTS}, got {text!r}")
    records = [_record(number) for number in range(int(text))]
    size = len(records) // PARTS

    def read(number: int) -> object:
        begin = number % PARTS * size
        read = [(record["name"], tag) for record in records[begin : begin + size] for tag in record["tags"]]
        digest = hashlib.sha256(repr(read).encode()).hexdigest()
        return {"part": number % PARTS, "records": len(read), "digest": digest}

    return read


def _record(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"record {number}", "tags": [str(number % 7)]}


def _serve(function: _Compute) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        number = environ["PATH_INFO"].rpartition("/")[2]
        body = orjson.dumps(function(int(number)) if number.isdigit() else {})
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return application


application = workload(os.environ)
