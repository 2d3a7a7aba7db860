"""Answers that were given already, as long as nothing changes: the key piece is `Bodies`."""

from collections.abc import Hashable
from typing import Final

ROOM: Final = 16 * 1024 * 1024


class Bodies:
    """Bodies by what was asked, so many bytes of them at most; the one that was asked for longest ago goes first."""

    def __init__(self, room: int = ROOM) -> None:
        """room: bytes of all bodies together; a longer one is not kept."""
        self._room = room
        self._size = 0
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, asked: Hashable) -> bytes | None:
        """The body, if it is kept."""
        body = self._bodies.pop(asked, None)
        if body is not None:
            self._bodies[asked] = body
        return body

    def keep(self, asked: Hashable, body: bytes) -> None:
        """Keep the body of a question that none is kept of."""
        if len(body) > self._room:
            return
        self._bodies[asked] = body
        self._size += len(body)
        while self._size > self._room:
            self._size -= len(self._bodies.pop(next(iter(self._bodies))))

    def clear(self) -> None:
        """Forget all of them."""
        self._bodies.clear()
        self._size = 0
