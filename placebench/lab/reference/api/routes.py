"""The routes of the whole API: each path with the handlers of its methods and the microversion that introduced it.

`ROUTES` is the table of all routes; `find_route` finds the route of a path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from werkzeug import Response
from werkzeug.exceptions import NotFound
from werkzeug.routing import Map, Rule

from placebench.lab.reference.api import responses
from placebench.lab.reference.api.call import Call, Handler
from placebench.lab.reference.api.handlers import allocations, candidates, inventories, name_tables, providers
from placebench.lab.reference.api.handlers.allocations import ADMINISTRATION, READER
from placebench.lab.reference.api.microversion import NEWEST, OLDEST

_SERVICE: Final = frozenset({"service"})
_ANYBODY: Final = frozenset[str]()


@dataclass(frozen=True, eq=False)
class Route:
    """A path with the handlers of its methods, the minor version that introduced it, and the roles that may use it."""

    path: str
    handlers: Mapping[str, Handler]
    since: int = 0
    roles: frozenset[str] = ADMINISTRATION


@dataclass(frozen=True)
class RouteMatch:
    """The route of a path, and the values of the variable parts of the path."""

    route: Route
    names: dict[str, str]


def _show_versions(call: Call) -> Response:
    """GET /: list the API versions that are served. The benchmark uses it as a control, as it needs no database."""
    version = {
        "id": "v1.0",
        "max_version": str(NEWEST),
        "min_version": str(OLDEST),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": call.prefix}],
    }
    return responses.document({"versions": [version]})


ROUTES: Final = (
    Route("/", {"GET": _show_versions}, roles=_ANYBODY),
    Route("/allocation_candidates", {"GET": candidates.list_candidates}, since=10),
    Route("/allocations", {"POST": allocations.replace_several}, since=13),
    Route(
        "/allocations/<consumer_uuid>",
        {
            "GET": allocations.show_allocations,
            "PUT": allocations.replace_allocations,
            "DELETE": allocations.delete_allocations,
        },
    ),
    Route("/reshaper", {"POST": allocations.reshape}, since=30, roles=_SERVICE),
    Route(
        "/resource_classes",
        {"GET": name_tables.list_resource_classes, "POST": name_tables.create_resource_class},
        since=2,
    ),
    Route(
        "/resource_classes/<name>",
        {
            "GET": name_tables.show_resource_class,
            "PUT": name_tables.ensure_resource_class,
            "DELETE": name_tables.delete_resource_class,
        },
        since=2,
    ),
    Route("/resource_providers", {"GET": providers.list_providers, "POST": providers.create_provider}),
    Route(
        "/resource_providers/<uuid>",
        {"GET": providers.show_provider, "PUT": providers.update_provider, "DELETE": providers.delete_provider},
    ),
    Route(
        "/resource_providers/<uuid>/aggregates",
        {"GET": providers.show_aggregates, "PUT": providers.replace_aggregates},
        since=1,
    ),
    Route("/resource_providers/<uuid>/allocations", {"GET": allocations.show_provider_allocations}),
    Route(
        "/resource_providers/<uuid>/inventories",
        {
            "GET": inventories.list_inventories,
            "POST": inventories.create_inventory,
            "PUT": inventories.replace_inventories,
            "DELETE": inventories.clear_inventories,
        },
    ),
    Route(
        "/resource_providers/<uuid>/inventories/<resource_class>",
        {
            "GET": inventories.show_inventory,
            "PUT": inventories.update_inventory,
            "DELETE": inventories.delete_inventory,
        },
    ),
    Route(
        "/resource_providers/<uuid>/traits",
        {"GET": providers.show_traits, "PUT": providers.replace_traits, "DELETE": providers.clear_traits},
        since=6,
    ),
    Route("/resource_providers/<uuid>/usages", {"GET": allocations.show_provider_usages}),
    Route("/traits", {"GET": name_tables.list_traits}, since=6),
    Route(
        "/traits/<name>",
        {"GET": name_tables.show_trait, "PUT": name_tables.ensure_trait, "DELETE": name_tables.delete_trait},
        since=6,
    ),
    Route("/usages", {"GET": allocations.show_project_usages}, since=9, roles=ADMINISTRATION | {READER}),
)

# A path with a trailing slash is not found, and no path is redirected: Placement redirects none either.
_MAP: Final = Map(
    [Rule(route.path, endpoint=route, merge_slashes=False) for route in ROUTES], merge_slashes=False
).bind("")


@lru_cache(maxsize=128)
def find_route(path: str) -> RouteMatch | None:
    """Return the route of the path, or None if there is no such path."""
    try:
        route, names = _MAP.match(path or "/")
    except NotFound:
        return None
    return RouteMatch(route, dict(names))
