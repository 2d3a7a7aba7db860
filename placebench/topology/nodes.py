"""Reads the providers of one tree of a topology file: `[[providers]]` or `[[kinds.providers]]`.

The key piece is `nodes_of`.
"""

from collections.abc import Mapping

from placebench.topology.section import Form, Section
from placebench.topology.tree import MAXIMUM, Inventory, Node, Some
from placebench.topology.vocabulary import CLASS, TRAIT

NAME = Form("[A-Za-z0-9_.-]{1,100}", "a name of letters, digits, '_', '.', '-', at most 100")
_MOST_ALIKE = 10_000


def nodes_of(document: Section) -> tuple[Node, ...]:
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
    name = section.text("name", NAME)
    if "count" not in section.values:
        return [name]
    if root:
        section.fail("count", "no count: a tree has one root, --trees makes more of them", section.values["count"])
    return [f"{name}{number}" for number in range(section.whole("count", at_least=1, at_most=_MOST_ALIKE))]


def _node(section: Section, name: str, nodes: list[Node], places: Mapping[str, int]) -> Node:
    section.only("name", "parent", "inventories", "traits", "some_traits", "aggregates", "some_aggregates", "count")
    parent = _parent(section, places)
    traits = section.texts("traits", TRAIT)
    aggregates = section.texts("aggregates", NAME)
    return Node(
        name=name,
        path=name if parent is None else f"{nodes[parent].path}/{name}",
        parent=parent,
        inventories=_inventories(section.table("inventories")),
        traits=traits,
        some_traits=_some(section.table("some_traits"), TRAIT, besides=traits),
        aggregates=aggregates,
        some_aggregates=_some(section.table("some_aggregates"), NAME, besides=aggregates),
    )


def _parent(section: Section, places: Mapping[str, int]) -> int | None:
    if not places:
        if "parent" in section.values:
            section.fail("parent", "no parent: the first provider is the root", section.values["parent"])
        return None
    parent = section.text("parent", NAME)
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
