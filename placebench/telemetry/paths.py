"""Paths as patterns, so that a million URLs are a handful of series.

The key piece is `PathPatterns`. A route that the framework knows is better and goes first; see `watching`.
"""

import re

from placebench.telemetry.series_file import clean

OTHER = "(other)"
_MOST_PATTERNS = 200
_MOST_REMEMBERED = 2000
_VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SEGMENT = re.compile(
    r"(?<=/)(?:[0-9]+|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,})(?=/|$)"
)


def bounded_verb(verb: str) -> str:
    """The verb, or one word for all that HTTP does not know: a client may send any."""
    return verb if verb in _VERBS else OTHER


class PathPatterns:
    """Patterns of one process: numbers, UUIDs and hashes are `<id>`, and after 200 patterns all others are one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._patterns: set[str] = set()

    def of(self, path: str) -> str:
        """The pattern of *path*, for a line of telemetry."""
        known = self._known.get(path)
        if known is None:
            known = self._new(path)
            if len(self._known) < _MOST_REMEMBERED:
                self._known[path] = known
        return known

    def _new(self, path: str) -> str:
        pattern = clean(_SEGMENT.sub("<id>", path)) or "/"
        if pattern not in self._patterns:
            if len(self._patterns) >= _MOST_PATTERNS:
                return OTHER
            self._patterns.add(pattern)
        return pattern
