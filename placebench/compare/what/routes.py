"""Routes of requests: paths in which ids are replaced by a name, such as `/orders/{id}`.

`path_template` replaces what looks like an id, `RouteFinder` also what differs in very many paths, such as the slugs of
a shop, or follows templates that the user gives.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

_ID = re.compile(
    r"\d+"
    r"|[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
    r"|[0-9A-Fa-f]{16,}"
    r"|(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_-]{20,}={0,2}"  # ULIDs, KSUIDs, base64: letters and digits
    r"|\d{4}-\d\d(-\d\d)?"
    r"|[A-Za-z]{1,5}[-_]\d+"
)
_MAX_VALUES = 20
"""Maximum number of different values that one segment of otherwise equal paths has before it counts as an id."""


def path_template(path: str) -> str:
    """Return a path, without its query, in which each segment that looks like an id is `{id}`."""
    return "/".join("{id}" if _ID.fullmatch(part) else part for part in path.partition("?")[0].split("/"))


class RouteFinder:
    """Finds the route of each path, by templates that a user gave, or by what looks like an id."""

    def __init__(self, templates: Sequence[str] = ()) -> None:
        """templates: paths with names in braces, such as /shop/{slug}; the first that fits is the route."""
        self._patterns: Mapping[str, re.Pattern[str]] = {
            template: re.compile("/".join(map(_segment_pattern, template.split("/")))) for template in templates
        }

    def route(self, path: str) -> str:
        """Return the route of a path; a query is ignored."""
        plain = path.partition("?")[0]
        given = (template for template, pattern in self._patterns.items() if pattern.fullmatch(plain))
        return next(given, None) or path_template(plain)

    def merged(self, routes: Iterable[str]) -> dict[str, str]:
        """Return each of these routes with the route that it is a part of.

        Where more than 20 routes differ in one segment alone, the segment becomes `{name}`. Given templates stay.
        """
        made = {route: route for route in routes}
        while True:
            alike: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
            for route in set(made.values()) - self._patterns.keys():
                parts = route.split("/")
                for place, part in enumerate(parts):
                    if part and not part.startswith("{"):
                        alike[place, "/".join([*parts[:place], "{name}", *parts[place + 1 :]])].add(route)
            most = max(alike, key=lambda key: len(alike[key]), default=None)
            if most is None or len(alike[most]) <= _MAX_VALUES:
                return made
            made = {route: most[1] if current in alike[most] else current for route, current in made.items()}


def _segment_pattern(segment: str) -> str:
    return "[^/]+" if segment.startswith("{") and segment.endswith("}") else re.escape(segment)
