"""Whether everyone gives the same answers, body by body as they come: the key piece is `Agreement`."""

import hashlib
from urllib.parse import parse_qs, urlsplit

from placebench.errors import GateFailedError
from placebench.experiment.answers import difference, read_answer


class Agreement:
    """Remembers the first answer to each request, and holds every other one to it."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, bytes]] = {}
        """Who answered first, and what."""
        self._known: set[tuple[str, bytes]] = set()

    def hold(self, name: str, request: str, body: bytes) -> None:
        """*name* answered *body*; raises GateFailedError where it says something else than the first answer did.

        Bytes that were seen before cost a digest. A request with a limit has many legal answers and is not held.
        """
        key = (request, hashlib.sha256(body).digest())
        if key in self._known or "limit" in parse_qs(urlsplit(request).query):
            return
        first, expected = self._first.setdefault(request, (name, body))
        if differs := difference(read_answer(expected), read_answer(body)):
            raise GateFailedError(f"{name} answers differently from {first}, no speed is printed: {differs}")
        self._known.add(key)
