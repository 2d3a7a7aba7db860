"""Read and write topology files (TOML), which describe inventory data sets.

`read_topology` gives a `Topology`. Every mistake is a TopologyError that names the file, the key, what was expected and
what was seen. `render_toml` gives the text that it reads again.
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
"""Placement's own bound of an allocation ratio."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class _TextForm:
    """How a text must look, and how to say so."""

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
    """Whether the class or trait is one that a topology may name and that users do not make."""
    return (_CLASS.matches(name) or _TRAIT.matches(name)) and not is_custom(name)


def is_custom(name: str) -> bool:
    """Whether the class or trait is one that users make, and not one that every server has."""
    return name.startswith("CUSTOM_")


_Number = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
_NumberOrZero = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Tables = dict[str, Any]
"""By names that the user chooses: each is converted by itself, so that a message names it."""


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
    """The topology that the file describes, its trees repeated *trees* times (the file's own number when None).

    utilization: fill the trees to this, whatever the file says of utilization and claims (when None: as it says).
    Raises TopologyError for a file that cannot be read, is no TOML, or has a wrong key or value.
    """
    content, place = read_toml(path, _File, error=TopologyError), _Place(str(path))
    tree_types = _tree_types(content, place)
    most_trees = min(_max_trees(each.nodes) for each in tree_types)
    if content.utilization is not None and any(each.claims for each in tree_types):
        place.fail("utilization", "no utilization beside claims", content.utilization)
    return Topology(
        name=place.text("the file's name", path.stem, _NAME),
        trees=place.number("trees", content.trees, 0, most_trees)
        if trees is None
        else _within("trees", trees, 0, most_trees),
        seed=_within("seed", seed, limits.MIN_SEED, limits.MAX_SEED),
        request=place.text("request", content.request, _REQUEST),
        tree_types=tree_types,
        utilization=content.utilization if utilization is None else _check_utilization(utilization),
        aggregates_every=content.aggregates_every,
    )


@dataclass(frozen=True)
class _Place:
    """The place of something in a file, for messages: `file: providers[2].inventories`."""

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
        """A list of different texts."""
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
        """The value at this place as a *kind*."""
        converted: _T = check(value, kind, self.file, at=self.key, error=TopologyError)
        return converted


def _tree_types(content: _File, place: _Place) -> tuple[TreeType, ...]:
    """One tree type from [[providers]], or several from [[tree_types]]."""
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
    """The providers in the file's order, each after its parent, the root first."""
    nodes: list[Node] = []
    places: dict[str, int] = {}
    for number, table in enumerate(tables):
        at = place / f"providers[{number}]"
        for name in _names(table, at, is_root=not nodes):
            node = _node(table, name, nodes, places, at)
            if node.name in places:
                at.fail("name", "a name that no other provider has", node.name)
            places[node.name] = len(nodes)
            nodes.append(node)
    return tuple(nodes)


def _names(table: _ProviderTable, place: _Place, *, is_root: bool) -> list[str]:
    """The provider's name, or with a count the names of so many alike, such as fpga0 and fpga1."""
    name = place.text("name", table.name, _NAME)
    if table.count is UNSET:
        return [name]
    if is_root:
        place.fail("count", "no count: a tree has one root, --trees makes more of them", table.count)
    return [f"{name}{number}" for number in range(table.count)]


def _node(table: _ProviderTable, name: str, nodes: list[Node], places: Mapping[str, int], place: _Place) -> Node:
    parent = _parent(table, places, place)
    traits = place.texts("traits", table.traits, _TRAIT)
    aggregates = place.texts("aggregates", table.aggregates, _NAME)
    return Node(
        name=name,
        path=name if parent is None else f"{nodes[parent].path}/{name}",
        parent=parent,
        inventories=_inventories(table.inventories, place / "inventories"),
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


def _inventories(tables: _Tables, place: _Place) -> tuple[Inventory, ...]:
    inventories = []
    for name, content in tables.items():
        table = (place / place.text(name, name, _CLASS)).convert(content, _InventoryTable)
        (place / name).number("reserved", table.reserved, 0, table.total)
        inventories.append(Inventory(name, **{key: getattr(table, key) for key in table.__struct_fields__}))
    return tuple(inventories)


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
        claims.append(ClaimPattern(_takes(table, nodes, at), _counts(table)))
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


def _counts(table: _ClaimTable) -> tuple[int, ...]:
    return (1,) if table.counts is UNSET else tuple(table.counts)


def _check_utilization(utilization: float) -> float:
    if not 0 <= utilization <= 1:
        raise TopologyError(f"utilization: expected a number from 0 to 1, saw {utilization}")
    return utilization


def _max_trees(nodes: tuple[Node, ...]) -> int:
    """How many trees have ids that fit Placement's integer columns."""
    return MAX_INTEGER // max(len(nodes), sum(len(node.inventories) for node in nodes))


def _within(name: str, value: int, at_least: int, at_most: int) -> int:
    if not at_least <= value <= at_most:
        raise TopologyError(f"{name}: expected a whole number from {at_least} to {at_most}, saw {value}")
    return value


_DEFAULTS = {field.name: field.default for field in fields(Inventory)}


def render_toml(topology: Topology, *, comments: Sequence[str] = ()) -> str:
    """The text of the file, the *comments* on top; the topology's name and seed are not in it."""
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
        yield from ("", f"[[{above}claims]]", *_claim_lines(tree_type.nodes, claim))


def _group_alike(nodes: Sequence[Node]) -> Iterator[tuple[str, list[Node]]]:
    """Each provider with those after it that a count can say with it: x0, x1, …, alike but for their names."""
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
        yield f"inventories.{inventory.resource_class} = {_inventory_text(inventory)}"
    for key, subset in (("some_traits", node.some_traits), ("some_aggregates", node.some_aggregates)):
        if subset:
            limits_text = f"at_least = {subset.at_least}, at_most = {subset.at_most}"
            yield f"{key} = {{ of = {_quote_all(subset.names)}, {limits_text} }}"


def _inventory_text(inventory: Inventory) -> str:
    amounts = [
        f"{name} = {value}"
        for name, value in vars(inventory).items()
        if name != "resource_class" and (name == "total" or value != _DEFAULTS[name])
    ]
    return f"{{ {', '.join(amounts)} }}"


def _claim_lines(nodes: Sequence[Node], claim: ClaimPattern) -> Iterator[str]:
    if claim.counts != (1,):
        yield f"counts = [{', '.join(map(str, claim.counts))}]"
    for place, takes in groupby(claim.takes, key=lambda take: take.place):
        amounts = ", ".join(f"{take.resource_class} = {take.amount}" for take in takes)
        name = nodes[place].name
        yield f"takes.{_quote(name) if '.' in name else name} = {{ {amounts} }}"


def _quote_all(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quote, texts))}]"


def _quote(text: str) -> str:
    """A basic string of TOML; the names and requests of a topology hold nothing that is not printable."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
