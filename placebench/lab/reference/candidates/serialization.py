"""How the document becomes bytes: by the standard library's json or by orjson."""

import json
from typing import Any

import orjson

from placebench.lab.reference.domain.optimization import Implementation, Optimization


def by_json(document: Any) -> bytes:
    """Text first, in the standard library's spelling with blanks, then its bytes."""
    return json.dumps(document).encode()


def by_orjson(document: Any) -> bytes:
    """Bytes at once, without blanks: 6 % shorter on the reference request.

    orjson refuses integers beyond 64 bits, which a capacity may be (a large total times a large allocation ratio).
    """
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return by_json(document)


SERIALIZATION = Optimization(
    name="orjson",
    field="serialise",
    baseline=Implementation("json", by_json),
    alternative=Implementation("orjson", by_orjson),
    why="The document of 1000 trees has 2.5 MB: orjson writes it in a tenth of the time.",
    source="Our measurement: 26.7 ms with json, 2.3 ms with orjson (2 cores, AMD EPYC, Python 3.11).",
    metric="cpu_s",
)
