"""Documents with one thing wrong: every place of a JSON document, and what stands there instead.

The main parts are `places` and `spoiled`.
"""

import json
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]

DEEP, NOT_A_NUMBER, GONE = "deep", "not a number", "gone"
_RAW = {DEEP: "[" * 100_000 + "]" * 100_000, "rather deep": "[" * 400 + "]" * 400, NOT_A_NUMBER: "NaN"}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**30, "", "x", "../../etc", [], {}, [None], {"a": None}, 1e-300),
    *(GONE, *_RAW),
)
"""What stands in the place of something that is right; GONE: nothing, and not even its key."""
FILES = (b"", b"\n", b"\xff\xfe\n", b"null\n", b"[]\n", b"{}\n", b"[" * 100_000 + b"\n", b'{"name": \n')
"""What stands in the place of a whole file."""


def places(document: Any, above: Place = ()) -> Iterator[Place]:
    """Each value of the document, this one first; of a list the first stands for all."""
    yield above
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*above, key))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*above, 0))


def spoiled(document: Any, place: Place, value: Any) -> str:
    """The document as JSON with *value* at this place."""
    text = json.dumps(_put(document, place, value))
    return text.replace(json.dumps(value), _RAW[value]) if isinstance(value, str) and value in _RAW else text


def _put(document: Any, place: Place, value: Any) -> Any:
    if not place:
        return {} if value == GONE else value
    key, *below = place
    copied = list(document) if isinstance(document, list) else dict(document)
    if value == GONE and not below:
        del copied[key]  # type: ignore[arg-type]  # a key of a mapping, or a place in a list
    else:
        copied[key] = _put(document[key], tuple(below), value)  # type: ignore[index]
    return copied
