"""Reads a topology file (TOML) and validates it: every mistake is a TopologyError that names file, key and expectation.

The main function is `read`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from os_resource_classes import STANDARDS

from placebench.addresses import REQUEST
from placebench.decoding import read_toml
from placebench.errors import TopologyError
from placebench.topology.topology import Topology
from placebench.topology.tree import (
    MAXIMUM,
    Claim,
    Inventory,
    Kind,
    Node,
    Some,
    Take,
    capacity,
    gives,
    overdrawn,
    stocks_of,
)

_LARGEST = 3.4e38
"""Placement's own bound of a ratio."""


@dataclass(frozen=True)
class Form:
    """How a text must look, and how to say so."""

    pattern: str
    expected: str


@dataclass(frozen=True)
class Section:
    """One table of the file: `key` is where it stands ("providers[2].inventories"), empty for the whole file."""

    file: Path
    key: str
    values: Mapping[str, Any]

    def only(self, *names: str) -> None:
        """Nothing but these keys may stand here: a misspelt key shall not be silently without effect."""
        for name in self.values:
            if name not in names:
                raise self.error(name, f"unknown key, expected one of {', '.join(names)}")

    def keys(self, form: Form) -> tuple[str, ...]:
        """The keys of this table, where they are names of the user's choice."""
        return tuple(self._text(name, name, form) for name in self.values)

    def text(self, name: str, form: Form) -> str:
        """The text under *name*."""
        return self._text(name, self.values.get(name), form)

    def texts(self, name: str, form: Form) -> tuple[str, ...]:
        """The list of different texts under *name*; an absent list is an empty one."""
        values = self.values.get(name, [])
        if not isinstance(values, list):
            self.fail(name, "a list", values)
        found = tuple(self._text(f"{name}[{place}]", value, form) for place, value in enumerate(values))
        for place, value in enumerate(found):
            if value in found[:place]:
                self.fail(f"{name}[{place}]", "each name once", value)
        return found

    def whole(self, name: str, *, default: int | None = None, at_least: int, at_most: int) -> int:
        """The whole number under *name*."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            self.fail(name, f"a whole number from {at_least} to {at_most}", value)
        return value

    def wholes(self, name: str, *, default: tuple[int, ...], at_most: int, most: int) -> tuple[int, ...]:
        """The list of one to *most* whole numbers from 0 under *name*."""
        values = self.values.get(name, list(default))
        if not isinstance(values, list) or not 0 < len(values) <= most:
            self.fail(name, f"a list of 1 to {most} numbers", values)
        inside = Section(self.file, self.key, {f"{name}[{place}]": value for place, value in enumerate(values)})
        return tuple(inside.whole(each, at_least=0, at_most=at_most) for each in inside.values)

    def fraction(self, name: str) -> float | None:
        """The number from 0 to 1 under *name*, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            self.fail(name, "a number from 0 to 1", value)
        return float(value)

    def positive(self, name: str, *, default: float) -> float:
        """The number above zero under *name*."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST:
            self.fail(name, "a number above 0", value)
        return float(value)

    def table(self, name: str) -> Section:
        """The table under *name*; an absent table is an empty one."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.fail(name, "a table", value)
        return Section(self.file, self._key(name), value)

    def tables(self, name: str) -> list[Section]:
        """The tables that stand under *name* as `[[name]]`, at least one."""
        values = self.values.get(name)
        if not isinstance(values, list) or not values or not all(isinstance(value, dict) for value in values):
            self.fail(name, f"one or more tables [[{name}]]", values)
        return [Section(self.file, self._key(f"{name}[{place}]"), value) for place, value in enumerate(values)]

    def fail(self, name: str, expected: str, seen: object) -> NoReturn:
        """Raise the error that says what was expected under *name* and what was seen."""
        raise self.error(name, f"expected {expected}, saw {'nothing' if seen is None else repr(seen)}")

    def error(self, name: str, problem: str) -> TopologyError:
        """The error that names the file, the key and the problem."""
        return TopologyError(f"{self.file}: {self._key(name)}: {problem}")

    def _text(self, name: str, value: object, form: Form) -> str:
        if not isinstance(value, str) or not re.fullmatch(form.pattern, value):
            self.fail(name, form.expected, value)
        return value

    def _key(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name


_CUSTOM = "CUSTOM_[A-Z0-9_]{1,248}"

CLASS = Form(f"{_CUSTOM}|{'|'.join(STANDARDS)}", "a standard resource class or CUSTOM_[A-Z0-9_]+")
TRAIT = Form(
    f"{_CUSTOM}|(COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{{1,240}}",
    "a standard trait (COMPUTE_…, HW_…, MISC_…, OWNER_…, STORAGE_…) or CUSTOM_[A-Z0-9_]+",
)


def is_standard(name: str) -> bool:
    """Whether the class or trait is one that a topology may name and that users do not make."""
    known = re.fullmatch(CLASS.pattern, name) or re.fullmatch(TRAIT.pattern, name)
    return bool(known) and not is_custom(name)


def is_custom(name: str) -> bool:
    """Whether the class or trait is one that users make, and not one that every server has."""
    return name.startswith("CUSTOM_")


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


MOST_TURNS = 10_000


def claims_of(section: Section, nodes: Sequence[Node]) -> tuple[Claim, ...]:
    """The claims in this part of the file on a tree of these nodes; none where there are no claims."""
    if "claims" not in section.values:
        return ()
    tables = section.tables("claims")
    claims = tuple(_claim(table, nodes) for table in tables)
    for table, claim in zip(tables, claims, strict=True):
        if len(claim.counts) != len(claims[0].counts):
            expected = f"as many counts as the first claim of the kind has ({len(claims[0].counts)})"
            table.fail("counts", expected, list(claim.counts))
    stocks = stocks_of(nodes)
    if (key := overdrawn(stocks, claims)) is not None:
        place, name = key
        section.fail("claims", f"at most {capacity(stocks[key]):g} {name} of {nodes[place].name} in each tree", "more")
    return claims


def _claim(section: Section, nodes: Sequence[Node]) -> Claim:
    section.only("takes", "counts")
    places = {node.name: place for place, node in enumerate(nodes)}
    names = section.table("takes")
    takes = [
        take
        for name in names.keys(Form("|".join(map(_literal, places)), f"a provider of this tree: {', '.join(places)}"))
        for take in _takes(names.table(name), places[name], nodes[places[name]])
    ]
    if not takes:
        section.fail("takes", "what a consumer takes, such as takes.cn = { VCPU = 2 }", None)
    return Claim(tuple(takes), section.wholes("counts", default=(1,), at_most=MAXIMUM, most=MOST_TURNS))


def _literal(name: str) -> str:
    return name.replace(".", r"\.")


def _takes(section: Section, place: int, node: Node) -> list[Take]:
    stocks = {each.resource_class: each for each in node.inventories}
    takes = []
    for name in section.keys(CLASS):
        amount = section.whole(name, at_least=1, at_most=MAXIMUM)
        if name not in stocks or not gives(stocks[name], amount):
            section.fail(name, f"an amount that an inventory of {node.name} gives", amount)
        takes.append(Take(place, name, amount))
    return takes


MOST_SHARE = 1_000_000
_REQUEST = Form(REQUEST, "the path and query that it is measured with, such as '/allocation_candidates?…'")


def read(path: Path, *, trees: int | None = None, seed: int = 1, fill: float | None = None) -> Topology:
    """The topology that the file describes, its tree repeated *trees* times (the file's own number when None).

    *fill*: filled to this ratio, whatever the file says of fill and claims (when None: as the file says).
    Raises TopologyError for a file that cannot be read, is no TOML, or has a wrong key or value.
    """
    document = Section(path, "", read_toml(path, dict[str, Any], error=TopologyError))
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
        aggregates_every=_aggregates_every(document),
    )


def _kinds(document: Section) -> tuple[Kind, ...]:
    """One kind of tree from [[providers]], or several from [[kinds]]."""
    if "kinds" not in document.values:
        document.only("trees", "request", "fill", "aggregates_every", "providers", "claims", "kinds")
        nodes = nodes_of(document)
        return (Kind(nodes, claims=claims_of(document, nodes)),)
    document.only("trees", "request", "fill", "aggregates_every", "kinds")
    kinds = tuple(_kind(section) for section in document.tables("kinds"))
    if sum(kind.share for kind in kinds) > MOST_SHARE:
        document.fail("kinds", f"shares of at most {MOST_SHARE} together", sum(kind.share for kind in kinds))
    return kinds


def _kind(section: Section) -> Kind:
    section.only("share", "providers", "claims")
    nodes = nodes_of(section)
    share = section.whole("share", default=1, at_least=1, at_most=MOST_SHARE)
    return Kind(nodes, share=share, claims=claims_of(section, nodes))


def _fill(document: Section, kinds: tuple[Kind, ...]) -> float | None:
    fill = document.fraction("fill")
    if fill is not None and any(kind.claims for kind in kinds):
        document.fail("fill", "no fill beside claims", fill)
    return fill


def _aggregates_every(document: Section) -> int | None:
    if "aggregates_every" not in document.values:
        return None
    return document.whole("aggregates_every", at_least=1, at_most=MAXIMUM)


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


def _file_name(path: Path) -> str:
    file = Section(path, "", {"the file's name": path.stem})
    return file.text("the file's name", NAME)
