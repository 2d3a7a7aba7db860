"""Read and write topology files (TOML), which describe inventory data sets.

`read_topology` returns a `Topology`. Every mistake in a file is a TopologyError with the file, the key, the expected
and the given value. `render_toml` returns text that `read_topology` can read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from os_resource_classes import STANDARDS

from placebench import limits
from placebench.addresses import REQUEST
from placebench.decoding import check, read_toml
from placebench.errors import TopologyError
from placebench.lab.inventory.topology.topology import Topology
from placebench.lab.inventory.topology.tree import (
    MAX_INTEGER,
    ClaimPattern,
    Inventory,
    Node,
    RandomSubset,
    Take,
    TreeType,
    find_overdrawn,
    inventory_map,
)

MAX_WEIGHT = 1_000_000
_MAX_COPIES = 10_000
_MAX_COUNTS = 10_000
_MAX_RATIO = 3.4e38
"""Placement's own maximum of an allocation ratio."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class _TextForm:
    """The pattern that a text must match, and its description for error messages."""

    pattern: str
    expected: str

    def matches(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None


_CUSTOM = "CUSTOM_[A-Z0-9_]{1,248}"
_CLASS = _TextForm(f"{_CUSTOM}|{'|'.join(STANDARDS)}", "a standard resource class or CUSTOM_[A-Z0-9_]+")
_TRAIT = _TextForm(
    f"{_CUSTOM}|(COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{{1,240}}",
    "a standard trait (COMPUTE_…, HW_…, MISC_…, OWNER_…, STORAGE_…) or CUSTOM_[A-Z0-9_]+",
)
_NAME = _TextForm("[A-Za-z0-9_.-]{1,100}", "a name of letters, digits, '_', '.', '-', at most 100")
_REQUEST = _TextForm(REQUEST, "the path and query that it is measured with, such as '/allocation_candidates?…'")


def is_standard(name: str) -> bool:
    """Return whether the class or trait is a standard name that a topology may use."""
    return (_CLASS.matches(name) or _TRAIT.matches(name)) and not is_custom(name)


def is_custom(name: str) -> bool:
    """Return whether the class or trait is a custom one, which users create, and not a standard one."""
    return name.startswith("CUSTOM_")


_Number = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
_NumberOrZero = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Tables = dict[str, Any]
"""Tables under names that the user chooses; each is converted separately, so that an error message names it."""


class _InventoryTable(Struct, forbid_unknown_fields=True):
    total: _Number
    reserved: _NumberOrZero = 0
    min_unit: _Number = 1
    max_unit: _Number = MAX_INTEGER
    step_size: _Number = 1
    allocation_ratio: Annotated[float, Meta(gt=0, le=_MAX_RATIO)] = 1.0


class _SubsetTable(Struct, forbid_unknown_fields=True):
    of: list[str]
    at_least: _NumberOrZero = 0
    at_most: _NumberOrZero | UnsetType = UNSET


class _ProviderTable(Struct, forbid_unknown_fields=True):
    name: str
    parent: str | UnsetType = UNSET
    inventories: _Tables = {}
    traits: list[str] = []
    some_traits: _SubsetTable | UnsetType = UNSET
    aggregates: list[str] = []
    some_aggregates: _SubsetTable | UnsetType = UNSET
    count: Annotated[int, Meta(ge=1, le=_MAX_COPIES)] | UnsetType = UNSET


class _ClaimTable(Struct, forbid_unknown_fields=True):
    takes: _Tables
    counts: Annotated[list[_NumberOrZero], Meta(min_length=1, max_length=_MAX_COUNTS)] | UnsetType = UNSET


class _TreeTable(Struct, forbid_unknown_fields=True):
    providers: Annotated[list[_ProviderTable], Meta(min_length=1)]
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    claims: Annotated[list[_ClaimTable], Meta(min_length=1)] | UnsetType = UNSET


class _File(Struct, forbid_unknown_fields=True):
    request: str
    trees: _NumberOrZero = 1000
    utilization: _Share | None = None
    aggregates_every: _Number | None = None
    providers: Annotated[list[_ProviderTable], Meta(min_length=1)] | UnsetType = UNSET
    claims: Annotated[list[_ClaimTable], Meta(min_length=1)] | UnsetType = UNSET
    tree_types: Annotated[list[_TreeTable], Meta(min_length=1)] | UnsetType = UNSET


def read_topology(path: Path, *, trees: int | None = None, seed: int = 1, utilization: float | None = None) -> Topology:
    """Return the topology in the file, with *trees* trees (None: the number in the file).

    utilization: the utilization of the trees, which overrides the file's utilization and claims; None: as in the file.
    Raises TopologyError if the file cannot be read, is not TOML, or has an invalid key or value.
    """
    content, place = read_toml(path, _File, error=TopologyError), _Place(str(path))
    tree_types = _tree_types(content, place)
    # Ids have to fit into Placement's integer columns.
    max_trees = min(
        MAX_INTEGER // max(len(each.nodes), sum(len(node.inventories) for node in each.nodes)) for each in tree_types
    )
    if utilization is not None and not 0 <= utilization <= 1:
        raise TopologyError(f"utilization: expected a number from 0 to 1, saw {utilization}")
    if content.utilization is not None and any(each.claims for each in tree_types):
        place.fail("utilization", "no utilization beside claims", content.utilization)
    return Topology(
        name=place.text("the file's name", path.stem, _NAME),
        trees=place.number("trees", content.trees, 0, max_trees)
        if trees is None
        else _within("trees", trees, 0, max_trees),
        seed=_within("seed", seed, limits.MIN_SEED, limits.MAX_SEED),
        request=place.text("request", content.request, _REQUEST),
        tree_types=tree_types,
        utilization=content.utilization if utilization is None else utilization,
        aggregates_every=content.aggregates_every,
    )


@dataclass(frozen=True)
class _Place:
    """A position in a file, for error messages: `file: providers[2].inventories`."""

    file: str
    key: str = ""

    def __truediv__(self, key: str) -> "_Place":
        return _Place(self.file, f"{self.key}.{key}" if self.key else key)

    def fail(self, key: str, expected: str, seen: object) -> NoReturn:
        raise TopologyError(f"{self.file}: {(self / key).key}: expected {expected}, saw {seen!r}")

    def text(self, key: str, value: str, form: _TextForm) -> str:
        if not form.matches(value):
            self.fail(key, form.expected, value)
        return value

    def texts(self, key: str, values: Sequence[str], form: _TextForm) -> tuple[str, ...]:
        """Return the texts after checking that each matches *form* and that none occurs twice."""
        for number, value in enumerate(values):
            self.text(f"{key}[{number}]", value, form)
            if value in values[:number]:
                self.fail(f"{key}[{number}]", "each name once", value)
        return tuple(values)

    def number(self, key: str, value: int, at_least: int, at_most: int) -> int:
        if not at_least <= value <= at_most:
            self.fail(key, f"a whole number from {at_least} to {at_most}", value)
        return value

    def convert(self, value: object, kind: type[_T]) -> _T:
        """Return the value at this position as a *kind*; raise TopologyError if it is not valid."""
        converted: _T = check(value, kind, self.file, at=self.key, error=TopologyError)
        return converted


def _tree_types(content: _File, place: _Place) -> tuple[TreeType, ...]:
    """Return one tree type from [[providers]], or several from [[tree_types]]."""
    if content.tree_types is UNSET:
        if content.providers is UNSET:
            place.fail("providers", "one or more tables [[providers]] or [[tree_types]]", None)
        return (_tree_type(_TreeTable(content.providers, claims=content.claims), place),)
    for key in ("providers", "claims"):
        if getattr(content, key) is not UNSET:
            place.fail(key, "none of them outside of [[tree_types]]", "some")
    weights = sum(each.weight for each in content.tree_types)
    if weights > MAX_WEIGHT:
        place.fail("tree_types", f"weights of at most {MAX_WEIGHT} together", weights)
    return tuple(_tree_type(each, place / f"tree_types[{n}]") for n, each in enumerate(content.tree_types))


def _tree_type(table: _TreeTable, place: _Place) -> TreeType:
    nodes = _nodes(table.providers, place)
    claims = () if table.claims is UNSET else _claims(table.claims, nodes, place)
    return TreeType(nodes, weight=table.weight, claims=claims)


def _nodes(tables: Sequence[_ProviderTable], place: _Place) -> tuple[Node, ...]:
    """Return the providers in the order of the file: the root first, each after its parent."""
    nodes: list[Node] = []
    places: dict[str, int] = {}
    for number, table in enumerate(tables):
        at = place / f"providers[{number}]"
        names = [at.text("name", table.name, _NAME)]
        if table.count is not UNSET:
            if not nodes:
                at.fail("count", "no count: a tree has one root, --trees makes more of them", table.count)
            names = [f"{table.name}{copy}" for copy in range(table.count)]  # such as fpga0 and fpga1
        for name in names:
            node = _node(table, name, nodes, places, at)
            if node.name in places:
                at.fail("name", "a name that no other provider has", node.name)
            places[node.name] = len(nodes)
            nodes.append(node)
    return tuple(nodes)


def _node(table: _ProviderTable, name: str, nodes: list[Node], places: Mapping[str, int], place: _Place) -> Node:
    parent = _parent(table, places, place)
    traits = place.texts("traits", table.traits, _TRAIT)
    aggregates = place.texts("aggregates", table.aggregates, _NAME)
    inventories, at = [], place / "inventories"
    for resource_class, content in table.inventories.items():
        amounts = (at / at.text(resource_class, resource_class, _CLASS)).convert(content, _InventoryTable)
        (at / resource_class).number("reserved", amounts.reserved, 0, amounts.total)
        inventories.append(
            Inventory(resource_class, **{key: getattr(amounts, key) for key in amounts.__struct_fields__})
        )
    return Node(
        name=name,
        path=name if parent is None else f"{nodes[parent].path}/{name}",
        parent=parent,
        inventories=tuple(inventories),
        traits=traits,
        some_traits=_subset(table.some_traits, place / "some_traits", _TRAIT, besides=traits),
        aggregates=aggregates,
        some_aggregates=_subset(table.some_aggregates, place / "some_aggregates", _NAME, besides=aggregates),
    )


def _parent(table: _ProviderTable, places: Mapping[str, int], place: _Place) -> int | None:
    if not places:
        if table.parent is not UNSET:
            place.fail("parent", "no parent: the first provider is the root", table.parent)
        return None
    if table.parent is UNSET or table.parent not in places:
        seen = None if table.parent is UNSET else table.parent
        place.fail("parent", f"a provider above: {', '.join(places)}", seen)
    return places[table.parent]


def _subset(
    table: _SubsetTable | UnsetType, place: _Place, form: _TextForm, *, besides: tuple[str, ...]
) -> RandomSubset | None:
    if table is UNSET:
        return None
    names = place.texts("of", table.of, form)
    for number, name in enumerate(names):
        if name in besides:
            place.fail(f"of[{number}]", "a name that the provider does not always have", name)
    at_least = place.number("at_least", table.at_least, 0, len(names))
    at_most = len(names) if table.at_most is UNSET else table.at_most
    return RandomSubset(names, at_least, place.number("at_most", at_most, at_least, len(names)))


def _claims(tables: Sequence[_ClaimTable], nodes: Sequence[Node], place: _Place) -> tuple[ClaimPattern, ...]:
    claims = []
    for number, table in enumerate(tables):
        at = place / f"claims[{number}]"
        counts = (1,) if table.counts is UNSET else tuple(table.counts)
        claims.append(ClaimPattern(_takes(table, nodes, at), counts))
        if len(claims[-1].counts) != len(claims[0].counts):
            expected = f"as many counts as the first claim of the tree type has ({len(claims[0].counts)})"
            at.fail("counts", expected, list(claims[-1].counts))
    inventories = inventory_map(nodes)
    if (key := find_overdrawn(inventories, claims)) is not None:
        node, name = nodes[key[0]], key[1]
        place.fail("claims", f"at most {inventories[key].capacity:g} {name} of {node.name} in each tree", "more")
    return tuple(claims)


def _takes(table: _ClaimTable, nodes: Sequence[Node], place: _Place) -> tuple[Take, ...]:
    places = {node.name: number for number, node in enumerate(nodes)}
    takes = []
    for name, amounts in table.takes.items():
        at = place / f"takes.{name}"
        if name not in places:
            place.fail(f"takes.{name}", f"a provider of this tree: {', '.join(places)}", name)
        inventories = {each.resource_class: each for each in nodes[places[name]].inventories}
        for resource_class, value in at.convert(amounts, _Tables).items():
            amount = (at / resource_class).convert(value, _Number)
            if resource_class not in inventories or not inventories[resource_class].allows(amount):
                at.fail(resource_class, f"an amount that an inventory of {name} allows", amount)
            takes.append(Take(places[name], resource_class, amount))
    if not takes:
        place.fail("takes", "what a consumer takes, such as takes.cn = { VCPU = 2 }", table.takes)
    return tuple(takes)


def _within(name: str, value: int, at_least: int, at_most: int) -> int:
    if not at_least <= value <= at_most:
        raise TopologyError(f"{name}: expected a whole number from {at_least} to {at_most}, saw {value}")
    return value


_DEFAULTS = {field.name: field.default for field in fields(Inventory)}


def render_toml(topology: Topology, *, comments: Sequence[str] = ()) -> str:
    """Return the topology file as text, with the *comments* at its top; name and seed are not part of the file."""
    return "\n".join([*(f"# {comment}" for comment in comments), *_lines(topology), ""])


def _lines(topology: Topology) -> Iterator[str]:
    yield f"trees = {topology.trees}"
    if topology.utilization is not None:
        yield f"utilization = {topology.utilization}"
    if topology.aggregates_every is not None:
        yield f"aggregates_every = {topology.aggregates_every}"
    yield f"request = {_quote(topology.request)}"
    if len(topology.tree_types) == 1:
        yield from _tree_type_lines(topology.tree_types[0], "")
        return
    for tree_type in topology.tree_types:
        yield from ("", "[[tree_types]]", f"weight = {tree_type.weight}")
        yield from _tree_type_lines(tree_type, "tree_types.")


def _tree_type_lines(tree_type: TreeType, above: str) -> Iterator[str]:
    for stem, alike in _group_alike(tree_type.nodes):
        yield from ("", f"[[{above}providers]]", *_node_lines(tree_type.nodes, alike[0], stem, len(alike)))
    for claim in tree_type.claims:
        yield from ("", f"[[{above}claims]]")
        if claim.counts != (1,):
            yield f"counts = [{', '.join(map(str, claim.counts))}]"
        for place, takes in groupby(claim.takes, key=lambda take: take.place):
            amounts = ", ".join(f"{take.resource_class} = {take.amount}" for take in takes)
            name = tree_type.nodes[place].name
            yield f"takes.{_quote(name) if '.' in name else name} = {{ {amounts} }}"


def _group_alike(nodes: Sequence[Node]) -> Iterator[tuple[str, list[Node]]]:
    """Yield each provider with those after it that one `count` covers: x0, x1, …, equal apart from their names."""
    left = list(nodes)
    while left:
        first, count = left[0], 1
        if first.parent is not None and first.name.endswith("0"):
            stem = first.name.removesuffix("0")
            above = first.path.removesuffix(first.name)
            for count in range(1, len(left) + 1):
                name = f"{stem}{count}"
                if count == len(left) or left[count] != replace(first, name=name, path=above + name):
                    break
        yield (first.name if count == 1 else stem), left[:count]
        del left[:count]


def _node_lines(nodes: Sequence[Node], node: Node, name: str, count: int) -> Iterator[str]:
    yield f"name = {_quote(name)}"
    if count > 1:
        yield f"count = {count}"
    if node.parent is not None:
        yield f"parent = {_quote(nodes[node.parent].name)}"
    if node.traits:
        yield f"traits = {_quote_all(node.traits)}"
    if node.aggregates:
        yield f"aggregates = {_quote_all(node.aggregates)}"
    for inventory in node.inventories:
        amounts = [
            f"{key} = {value}"
            for key, value in vars(inventory).items()
            if key != "resource_class" and (key == "total" or value != _DEFAULTS[key])
        ]
        yield f"inventories.{inventory.resource_class} = {{ {', '.join(amounts)} }}"
    for key, subset in (("some_traits", node.some_traits), ("some_aggregates", node.some_aggregates)):
        if subset:
            limits_text = f"at_least = {subset.at_least}, at_most = {subset.at_most}"
            yield f"{key} = {{ of = {_quote_all(subset.names)}, {limits_text} }}"


def _quote_all(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quote, texts))}]"


def _quote(text: str) -> str:
    """Return a basic TOML string; names and requests of a topology have only printable characters."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
