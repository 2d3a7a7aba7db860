"""Trees read from PostgreSQL into a tree index, identical ones as one class: `fetch`.

PostgreSQL sends each distinct attribute (an inventory, a trait, an aggregate) once, with the ids of all providers that
have it. A provider's content is one number, which each further attribute replaces by that of the longer content; equal
numbers are equal contents, and only distinct ones are looked at. Amounts in use, of which few are equal, are kept
beside the content, a column for each class.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, pairwise, repeat
from operator import itemgetter, sub
from struct import unpack
from typing import Final, NamedTuple

from sqlalchemy import Connection

from placebench.errors import DatabaseError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.combinations import capacity
from placebench.reference.candidates.dedup import statements
from placebench.reference.candidates.dedup.statements import Trees
from placebench.reference.candidates.dedup.tree_index import (
    ROOT,
    InventoryType,
    ProviderType,
    TreeClass,
    TreeIndex,
    TreeLayout,
)
from placebench.reference.candidates.memo import Memo
from placebench.reference.optimizations.serialization import by_orjson
from placebench.reference.store.candidate_queries import SHARING_TRAIT

ALL_TREES: Final = Trees()
_CLASS_ID: Final = itemgetter(0)


def fetch(connection: Connection, index: TreeIndex, trees: Trees = ALL_TREES, *, aggregates: bool = True) -> list[int]:
    """Put the trees into the index, as they are in the connection's transaction, and return the ids of their roots.

    4 round trips, 5 with aggregates, 1 if there is no such tree. What is below a provider without a root is left out.

    Args:
        connection: To read from.
        index: To put the trees into.
        trees: Which ones.
        aggregates: Whether to read them; they are read anyway where a provider shares.

    Raises:
        DatabaseError: A uuid cannot be written into JSON as it is.
    """
    encoded_ids, encoded_parents, uuids = statements.read_providers(connection, trees)
    if encoded_ids is None:
        return []
    ids, parents = _decode_ids(encoded_ids), _decode_ids(encoded_parents)
    quoted = _quote_uuids(uuids, len(ids))
    try:
        roots, distances = _roots_and_distances(ids, parents)
    except KeyError:
        ids, parents, quoted = _drop_unrooted(ids, parents, quoted)
        roots, distances = _roots_and_distances(ids, parents)
    contents, memberships, having = _Contents(ids, distances), _Contents(), trees.having(ids)
    class_names = _add_inventories(contents, connection, having, index)
    _add_traits(contents, connection, having, index)
    if aggregates or SHARING_TRAIT in index.traits:
        for uuid, members in statements.read_aggregates(connection, having):
            memberships.add(uuid, _decode_ids(members))
    used = _read_used(connection, having, class_names)
    _put_trees(index, ids, roots, quoted, _TreeClasses(index, ids, contents, memberships, used))
    return [ids[place] for place in roots]


def fetch_names(connection: Connection, index: TreeIndex, request: CandidateRequest) -> None:
    """Read what only this request names: traits and classes that nobody has, and in_trees; up to 3 round trips."""
    named = {*request.root_required, *request.root_forbidden}
    named.update(name for group in request.groups for name in group.forbidden.union(*group.required))
    if unseen := named - index.traits:
        index.traits.update(statements.find_names(connection, "traits", unseen))
    if unseen := {name for group in request.groups for name, _ in group.resources} - index.resource_classes:
        index.resource_classes.update(statements.find_names(connection, "resource_classes", unseen))
    uuids = {group.in_tree for group in request.groups if group.in_tree is not None}
    if uuids:
        index.roots_of_named.update(statements.find_roots(connection, uuids))


def _decode_ids(encoded: bytes) -> tuple[int, ...]:
    return unpack(f">{len(encoded) // 4}i", encoded)


def _decode_amounts(encoded: bytes) -> tuple[int, ...]:
    return unpack(f">{len(encoded) // 8}q", encoded)


def _quote_uuids(uuids: str, count: int) -> list[str]:
    """The uuids, which have `","` between them, as JSON text each."""
    text = f'"{uuids}"'
    quoted = text.split(",")
    if len(quoted) != count or text.count('"') != 2 * count or "\\" in text:
        raise DatabaseError("resource_providers.uuid: one is no UUID; look for those of another length than 36")
    return quoted


def _roots_and_distances(ids: Sequence[int], parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """The places of the roots, and how many places before each provider its parent is.

    A root's parent is, by this count, at place -1 of its tree. Raises KeyError for a parent that is not there.
    """
    roots = [place for place, parent in enumerate(parents) if parent == ROOT]
    places = dict(zip(ids, range(len(ids)), strict=True))
    places[ROOT] = 0
    distances = list(map(sub, count(), map(places.__getitem__, parents)))
    for place in roots:
        distances[place] = 1
    return roots, distances


def _drop_unrooted(
    ids: Sequence[int], parents: Sequence[int], uuids: Sequence[str]
) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """The same without the providers below one that is not there, because it has no root."""
    rows, there = list(zip(ids, parents, uuids, strict=True)), {ROOT, *ids}
    while lost := {own for own, parent, _ in rows if parent not in there}:
        rows = [row for row in rows if row[0] not in lost]
        there -= lost
    return tuple(own for own, _, _ in rows), tuple(parent for _, parent, _ in rows), [uuid for _, _, uuid in rows]


class _Inventory(NamedTuple):
    """A provider's inventory of one class, but for what is used of it."""

    type: InventoryType
    capacity: int
    max_unit: int
    text: str  # of a summary, with a place for what is used

    @classmethod
    def of(
        cls, name: str, total: int, reserved: int, ratio: float, min_unit: int, max_unit: int, step_size: int
    ) -> "_Inventory":
        """Return that of a row of inventories."""
        most = capacity(total, reserved, ratio)
        text = f'{by_orjson(name).decode().replace("%", "%%")}:{{"capacity":{most},"used":%d}}'
        return cls(InventoryType(name, min_unit, step_size), most, max_unit, text)


class _Traits(NamedTuple):
    """Traits that the same providers hold, by their names."""

    names: tuple[str, ...]


# An int is how many places before the provider its parent is; a str is the uuid of an aggregate.
_Attribute = int | str | _Inventory | _Traits

_NOTHING: Final = 0  # the number of empty content


class _Contents:
    """The content of each provider as a number, which means an attribute and the number of the content before."""

    def __init__(self, provider_ids: Iterable[int] = (), distances: Sequence[int] = ()) -> None:
        """distances: how many places before each provider its parent is, as its first attribute."""
        self._attributes: list[_Attribute] = [_NOTHING]
        self._before = [_NOTHING]
        first = {distance: self.extend(_NOTHING, distance) for distance in dict.fromkeys(distances)}
        self.numbers = defaultdict(int, zip(provider_ids, map(first.__getitem__, distances), strict=True))

    def add(self, attribute: _Attribute, provider_ids: Sequence[int]) -> None:
        """Add an attribute to these providers, once to each; without a loop of Python's own."""
        numbers, extended = self.numbers, _ExtendedContents(self, attribute)
        numbers.update(
            zip(provider_ids, map(extended.__getitem__, map(numbers.__getitem__, provider_ids)), strict=True)
        )

    def extend(self, number: int, attribute: _Attribute) -> int:
        """Return a new number for the content of this number with one more attribute."""
        self._attributes.append(attribute)
        self._before.append(number)
        return len(self._attributes) - 1

    def attributes(self, number: int) -> list[_Attribute]:
        """Return the attributes of the content of this number, in their order."""
        found = []
        while number != _NOTHING:
            found.append(self._attributes[number])
            number = self._before[number]
        return found[::-1]


class _ExtendedContents(dict[int, int]):
    """The number that each content gets with the attribute."""

    def __init__(self, contents: _Contents, attribute: _Attribute) -> None:
        self._contents = contents
        self._attribute = attribute

    def __missing__(self, number: int) -> int:
        extended = self[number] = self._contents.extend(number, self._attribute)
        return extended


def _add_inventories(contents: _Contents, connection: Connection, having: str, index: TreeIndex) -> dict[int, str]:
    """In one order of the classes, so that equal providers have their inventories in equal order; their names by id."""
    names: dict[int, str] = {}
    for class_id, *columns, holders in sorted(statements.read_inventories(connection, having), key=_CLASS_ID):
        inventory = _Inventory.of(*columns)
        names[class_id] = inventory.type.class_name
        contents.add(inventory, _decode_ids(holders))
    index.resource_classes.update(names.values())
    return names


def _add_traits(contents: _Contents, connection: Connection, having: str, index: TreeIndex) -> None:
    """Traits that the same providers hold, as the features of a kind of processor, are one attribute."""
    names: defaultdict[bytes, list[str]] = defaultdict(list)
    for name, holders in statements.read_traits(connection, having):
        index.traits.add(name)
        names[bytes(holders)].append(name)
    for ids, together in names.items():
        contents.add(_Traits(tuple(together)), _decode_ids(ids))


def _read_used(connection: Connection, having: str, class_names: Mapping[int, str]) -> dict[str, dict[int, int]]:
    """What is used of each class, by provider."""
    return {
        class_names[class_id]: dict(zip(_decode_ids(holders), _decode_amounts(amounts), strict=True))
        for class_id, holders, amounts in statements.read_usages(connection, having)
        if class_id in class_names
    }


class _Provider(NamedTuple):
    """What a provider's content means."""

    distance: int  # how many places before it its parent is
    type: ProviderType
    inventories: list[_Inventory]
    text: str  # of a summary: the resources, with places for what is used


class _Content(NamedTuple):
    """What trees have in common whose providers have equal contents."""

    layout: TreeLayout
    capacities: list[int]  # of the layout's inventories
    max_units: list[int]
    used: list[tuple[int, Sequence[int]]]  # of each inventory: the place of its provider, and the column of its class
    text: str  # of each provider, a line each


class _TreeClasses(dict[tuple[object, ...], TreeClass]):
    """The class of each tree, by all that is known of the providers at its places."""

    def __init__(
        self,
        index: TreeIndex,
        ids: Sequence[int],
        contents: _Contents,
        memberships: _Contents,
        used: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._index = index
        self._used = {name: _column(amounts, ids) for name, amounts in used.items()}
        self._none = (0,) * len(ids)
        self._numbers = _column(contents.numbers, ids)
        self._groups = _column(memberships.numbers, ids) if memberships.numbers else self._none
        self._providers = Memo[int, _Provider](lambda number: _decode_provider(index, contents.attributes(number)))
        self._aggregates = Memo[int, frozenset[str]](lambda number: frozenset(map(str, memberships.attributes(number))))
        self._contents = Memo(self._content)
        distinguishing = [self._numbers, *([self._groups] if memberships.numbers else ()), *self._used.values()]
        self.places = tuple(zip(*distinguishing, strict=True)) if distinguishing[1:] else self._numbers

    def make(self, start: int, end: int) -> TreeClass:
        """Return the class of the tree from this place up to that one."""
        content = self._contents[self._numbers[start:end]]
        used = tuple([column[start + place] for place, column in content.used])
        most = tuple(map(min, map(sub, content.capacities, used), content.max_units))
        aggregates = tuple(map(self._aggregates.__getitem__, self._groups[start:end]))
        return TreeClass(content.layout, most, tuple((content.text % used).split("\n")), aggregates)

    def _content(self, numbers: tuple[int, ...]) -> _Content:
        distances, types, inventories, texts = zip(*map(self._providers.__getitem__, numbers), strict=True)
        layout = self._index.intern_tree(types, tuple(map(sub, count(), distances)))
        together = [*chain.from_iterable(inventories)]
        return _Content(
            layout,
            [each.capacity for each in together],
            [each.max_unit for each in together],
            [(place, self._used.get(each.class_name, self._none)) for place, each in layout.inventories],
            "\n".join(texts),
        )


def _column(values: Mapping[int, int], ids: Sequence[int]) -> tuple[int, ...]:
    """What each provider has of this, 0 for nothing."""
    return tuple(map(values.get, ids, repeat(0)))


def _decode_provider(index: TreeIndex, attributes: Sequence[_Attribute]) -> _Provider:
    distance, inventories = attributes[0], [each for each in attributes if isinstance(each, _Inventory)]
    assert isinstance(distance, int)
    traits = sorted(chain.from_iterable(each.names for each in attributes if isinstance(each, _Traits)))
    provider_type = index.intern_provider(tuple([each.type for each in inventories]), tuple(traits))
    return _Provider(distance, provider_type, inventories, ",".join([each.text for each in inventories]))


def _put_trees(
    index: TreeIndex, ids: Sequence[int], roots: Sequence[int], uuids: Sequence[str], classes: _TreeClasses
) -> None:
    """The trees, or replace them: from each root's place on to the next one's."""
    for root_id in index.class_of.keys() & {ids[place] for place in roots}:
        index.remove(root_id)
    places = classes.places
    for start, end in pairwise((*roots, len(ids))):
        key = places[start:end]
        tree_class = classes.get(key)
        if tree_class is None:
            tree_class = classes[key] = classes.make(start, end)
        index.put(ids[start], tree_class, uuids[start:end])
