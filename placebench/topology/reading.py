"""Reads a topology file (TOML) and checks it: every mistake is a TopologyError that names file, key and expectation.

The door is `read`. loaders/README.md describes the file.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from placebench.errors import TopologyError
from placebench.topology.claiming import claims_of
from placebench.topology.section import Form, Section
from placebench.topology.topology import Topology
from placebench.topology.tree import MAXIMUM, Inventory, Kind, Node, Some
from placebench.topology.vocabulary import CLASS, TRAIT

_NAME = Form("[A-Za-z0-9_.-]{1,100}", "a name of letters, digits, '_', '.', '-', at most 100")
MOST_SHARE = 1_000_000
_MOST_ALIKE = 10_000
_REQUEST = Form(r"/[^\s#]+", "the path and query that it is measured with, such as '/allocation_candidates?…'")


def read(path: Path, *, trees: int | None = None, seed: int = 1, fill: float | None = None) -> Topology:
    """The topology that the file describes, its tree repeated *trees* times (the file's own number when None).

    *fill*: filled to this ratio, whatever the file says of fill and claims (when None: as the file says).
    Raises TopologyError for a file that cannot be read, is no TOML, or has a wrong key or value.
    """
    document = Section(path, "", _toml(path))
    kinds = _kinds(document)
    most = min(_most_trees(kind.nodes) for kind in kinds)
    default_trees = document.whole("trees", default=1000, at_least=0, at_most=most)
    return Topology(
        name=_file_name(path),
        trees=default_trees if trees is None else _within("trees", trees, 0, most),
        seed=_within("seed", seed, -(2**63), 2**63 - 1),
        request=document.text("request", _REQUEST),
        kinds=kinds,
        fill=_fill(document, kinds) if fill is None else _ratio(fill),
    )


def _kinds(document: Section) -> tuple[Kind, ...]:
    """One kind of tree from [[providers]], or several from [[kinds]]."""
    if "kinds" not in document.values:
        document.only("trees", "request", "fill", "providers", "claims", "kinds")
        nodes = _nodes(document)
        return (Kind(nodes, claims=claims_of(document, nodes)),)
    document.only("trees", "request", "fill", "kinds")
    kinds = tuple(_kind(section) for section in document.tables("kinds"))
    if sum(kind.share for kind in kinds) > MOST_SHARE:
        document.fail("kinds", f"shares of at most {MOST_SHARE} together", sum(kind.share for kind in kinds))
    return kinds


def _kind(section: Section) -> Kind:
    section.only("share", "providers", "claims")
    nodes = _nodes(section)
    share = section.whole("share", default=1, at_least=1, at_most=MOST_SHARE)
    return Kind(nodes, share=share, claims=claims_of(section, nodes))


def _fill(document: Section, kinds: tuple[Kind, ...]) -> float | None:
    fill = document.fraction("fill")
    if fill is not None and any(kind.claims for kind in kinds):
        document.fail("fill", "no fill beside claims", fill)
    return fill


def _ratio(fill: float) -> float:
    if not 0 <= fill <= 1:
        raise TopologyError(f"fill: expected a number from 0 to 1, saw {fill}")
    return fill


def _most_trees(nodes: tuple[Node, ...]) -> int:
    """How many trees have ids that fit Placement's integer columns."""
    return MAXIMUM // max(len(nodes), sum(len(node.inventories) for node in nodes))


def _within(name: str, value: int, at_least: int, at_most: int) -> int:
    if not at_least <= value <= at_most:
        raise TopologyError(f"{name}: expected a whole number from {at_least} to {at_most}, saw {value}")
    return value


def _toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: is no TOML: {error}") from error


def _file_name(path: Path) -> str:
    file = Section(path, "", {"the file's name": path.stem})
    return file.text("the file's name", _NAME)


def _nodes(document: Section) -> tuple[Node, ...]:
    """The providers in the file's order, each after its parent, the root first."""
    nodes: list[Node] = []
    places: dict[str, int] = {}
    for section in document.tables("providers"):
        for name in _names(section, root=not nodes):
            node = _node(section, name, nodes, places)
            if node.name in places:
                section.fail("name", "a name that no other provider has", node.name)
            places[node.name] = len(nodes)
            nodes.append(node)
    return tuple(nodes)


def _names(section: Section, *, root: bool) -> list[str]:
    """The provider's name, or with a count those of so many alike: fpga0, fpga1, …"""
    name = section.text("name", _NAME)
    if "count" not in section.values:
        return [name]
    if root:
        section.fail("count", "no count: a tree has one root, --trees makes more of them", section.values["count"])
    return [f"{name}{number}" for number in range(section.whole("count", at_least=1, at_most=_MOST_ALIKE))]


def _node(section: Section, name: str, nodes: list[Node], places: Mapping[str, int]) -> Node:
    section.only("name", "parent", "inventories", "traits", "some_traits", "aggregates", "some_aggregates", "count")
    parent = _parent(section, places)
    traits = section.texts("traits", TRAIT)
    aggregates = section.texts("aggregates", _NAME)
    return Node(
        name=name,
        path=name if parent is None else f"{nodes[parent].path}/{name}",
        parent=parent,
        inventories=_inventories(section.table("inventories")),
        traits=traits,
        some_traits=_some(section.table("some_traits"), TRAIT, besides=traits),
        aggregates=aggregates,
        some_aggregates=_some(section.table("some_aggregates"), _NAME, besides=aggregates),
    )


def _parent(section: Section, places: Mapping[str, int]) -> int | None:
    if not places:
        if "parent" in section.values:
            section.fail("parent", "no parent: the first provider is the root", section.values["parent"])
        return None
    parent = section.text("parent", _NAME)
    if parent not in places:
        section.fail("parent", f"a provider that stands above: {', '.join(places)}", parent)
    return places[parent]


def _inventories(section: Section) -> tuple[Inventory, ...]:
    return tuple(_inventory(resource_class, section.table(resource_class)) for resource_class in section.keys(CLASS))


def _inventory(resource_class: str, section: Section) -> Inventory:
    section.only("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
    total = section.whole("total", at_least=1, at_most=MAXIMUM)
    return Inventory(
        resource_class=resource_class,
        total=total,
        reserved=section.whole("reserved", default=0, at_least=0, at_most=total),
        min_unit=section.whole("min_unit", default=1, at_least=1, at_most=MAXIMUM),
        max_unit=section.whole("max_unit", default=MAXIMUM, at_least=1, at_most=MAXIMUM),
        step_size=section.whole("step_size", default=1, at_least=1, at_most=MAXIMUM),
        allocation_ratio=section.positive("allocation_ratio", default=1.0),
    )


def _some(section: Section, form: Form, *, besides: tuple[str, ...]) -> Some | None:
    if not section.values:
        return None
    section.only("of", "at_least", "at_most")
    names = section.texts("of", form)
    for place, name in enumerate(names):
        if name in besides:
            section.fail(f"of[{place}]", "a name that the provider does not always have", name)
    at_least = section.whole("at_least", default=0, at_least=0, at_most=len(names))
    return Some(names, at_least, section.whole("at_most", default=len(names), at_least=at_least, at_most=len(names)))
