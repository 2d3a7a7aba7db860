"""A body of bytes that is held whole while it is short: the key piece is `held`."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

Body = bytes | Iterator[bytes]

STREAMED_FROM_BYTES: Final = 50_000_000


def held(parts: Iterator[bytes]) -> Body:
    """In one piece up to 50 MB; beyond, the parts that are written already and, as they are taken, those to come."""
    written: list[bytes] = []
    size = 0
    for part in parts:
        written.append(part)
        size += len(part)
        if size > STREAMED_FROM_BYTES:
            return chain(written, parts)
    return b"".join(written)
