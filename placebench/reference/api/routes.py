"""The whole API: each path with the handler of each of its methods, and the microversion since which it exists.

The key piece is `ROUTES`; `find` looks a path up in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from werkzeug.exceptions import NotFound
from werkzeug.routing import Map, Rule

from placebench.reference.api.call import Handler
from placebench.reference.api.handlers import (
    aggregates,
    allocations,
    candidates,
    inventories,
    provider_traits,
    providers,
    reshaper,
    resource_classes,
    root,
    traits,
    usages,
)

ADMINISTRATION: Final = frozenset({"admin", "service"})
SERVICE: Final = frozenset({"service"})
ANYBODY: Final = frozenset[str]()


@dataclass(frozen=True, eq=False)
class Route:
    """One path: its methods, the minor version that brought it, and the roles of which a user needs one."""

    path: str
    handlers: Mapping[str, Handler]
    since: int = 0
    roles: frozenset[str] = ADMINISTRATION
    in_every_version: bool = False


@dataclass(frozen=True)
class Found:
    """The route that a path leads to, with the names that stand in the path."""

    route: Route
    names: dict[str, str]


ROUTES: Final = (
    Route("/", {"GET": root.show}, roles=ANYBODY, in_every_version=True),
    Route("/allocation_candidates", {"GET": candidates.index}, since=10),
    Route("/allocations", {"POST": allocations.replace_several}, since=13),
    Route(
        "/allocations/<consumer_uuid>",
        {"GET": allocations.show, "PUT": allocations.replace, "DELETE": allocations.delete},
    ),
    Route("/reshaper", {"POST": reshaper.create}, since=30, roles=SERVICE),
    Route("/resource_classes", {"GET": resource_classes.index, "POST": resource_classes.create}, since=2),
    Route(
        "/resource_classes/<name>",
        {"GET": resource_classes.show, "PUT": resource_classes.ensure, "DELETE": resource_classes.delete},
        since=2,
    ),
    Route("/resource_providers", {"GET": providers.index, "POST": providers.create}),
    Route(
        "/resource_providers/<uuid>",
        {"GET": providers.show, "PUT": providers.update, "DELETE": providers.delete},
    ),
    Route("/resource_providers/<uuid>/aggregates", {"GET": aggregates.show, "PUT": aggregates.replace}, since=1),
    Route("/resource_providers/<uuid>/allocations", {"GET": allocations.of_provider}),
    Route(
        "/resource_providers/<uuid>/inventories",
        {
            "GET": inventories.index,
            "POST": inventories.create,
            "PUT": inventories.replace,
            "DELETE": inventories.clear,
        },
    ),
    Route(
        "/resource_providers/<uuid>/inventories/<resource_class>",
        {"GET": inventories.show, "PUT": inventories.update, "DELETE": inventories.delete},
    ),
    Route(
        "/resource_providers/<uuid>/traits",
        {"GET": provider_traits.show, "PUT": provider_traits.replace, "DELETE": provider_traits.clear},
        since=6,
    ),
    Route("/resource_providers/<uuid>/usages", {"GET": usages.of_provider}),
    Route("/traits", {"GET": traits.index}, since=6),
    Route("/traits/<name>", {"GET": traits.show, "PUT": traits.ensure, "DELETE": traits.delete}, since=6),
    Route("/usages", {"GET": usages.of_project}, since=9),
)

# A trailing slash leads nowhere, and no path is redirected: Placement has no canonical form to redirect to.
_MAP: Final = Map(
    [Rule(route.path, endpoint=route, merge_slashes=False) for route in ROUTES], merge_slashes=False
).bind("")


def find(path: str) -> Found | None:
    """The route of the path, or None."""
    try:
        route, names = _MAP.match(path or "/")
    except NotFound:
        return None
    return Found(route, dict(names))
