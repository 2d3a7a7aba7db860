"""Trees read from PostgreSQL into a tree index, providers of equal content as one class: `fetch`.

PostgreSQL sends each distinct attribute (an inventory, an amount in use, a trait, an aggregate) once, with the ids of
all providers that have it. A provider's content is one number, which each further attribute replaces by that
of the longer content; equal numbers are equal providers, and only distinct ones are looked at.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, pairwise
from operator import itemgetter, sub
from struct import unpack
from typing import Final, NamedTuple

from sqlalchemy import Connection

from placebench.errors import DatabaseError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.combinations import capacity
from placebench.reference.candidates.dedup import statements
from placebench.reference.candidates.dedup.statements import Trees
from placebench.reference.candidates.dedup.tree_index import ROOT, ClassInventory, ProviderClass, TreeClass, TreeIndex
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
    contents, having = _Contents(ids, distances), trees.having(ids)
    class_names = _add_inventories(contents, connection, having, index)
    _add_traits(contents, connection, having, index)
    if aggregates or SHARING_TRAIT in index.traits:
        for uuid, members in statements.read_aggregates(connection, having):
            contents.add(_Aggregate(uuid), _decode_ids(members))
    _add_usages(contents, connection, having, class_names)
    _put_trees(index, ids, roots, quoted, contents)
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


class _Usage(NamedTuple):
    """What is used of a class."""

    class_name: str
    amount: int


class _Traits(NamedTuple):
    """Traits that the same providers hold, by their names."""

    names: tuple[str, ...]


class _Aggregate(NamedTuple):
    """An aggregate, by its uuid."""

    uuid: str


# An int is the first attribute of each provider: how many places before it its parent is.
_Attribute = int | ClassInventory | _Usage | _Traits | _Aggregate

_NOTHING: Final = 0  # the number of empty content


class _Contents:
    """The content of each provider as a number, which means an attribute and the number of the content before."""

    def __init__(self, provider_ids: Iterable[int], distances: Sequence[int]) -> None:
        """distances: how many places before each provider its parent is."""
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

    def usages(self, number: int) -> tuple[dict[str, int], int]:
        """Return what is used of each class, the last attributes, and the number of the content before them."""
        found = {}
        while isinstance(attribute := self._attributes[number], _Usage):
            found[attribute.class_name] = attribute.amount
            number = self._before[number]
        return found, number

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


class _Unused(NamedTuple):
    """A content before usages."""

    distance: int
    inventories: tuple[ClassInventory, ...]
    traits: tuple[str, ...]
    aggregates: frozenset[str]


class _DecodedContents(dict[int, tuple[ProviderClass, int]]):
    """The provider class of each content, and how many places before the provider its parent is."""

    def __init__(self, index: TreeIndex, contents: _Contents) -> None:
        self._index = index
        self._contents = contents
        self._unused: dict[int, _Unused] = {}

    def __missing__(self, number: int) -> tuple[ProviderClass, int]:
        """What is used of a class without an inventory does not count."""
        usages, before = self._contents.usages(number)
        unused = self._unused.get(before)
        if unused is None:
            unused = self._unused[before] = _decode_unused(self._contents.attributes(before))
        inventories = unused.inventories
        if usages:
            inventories = tuple(
                [ClassInventory(name, most, usages.get(name, 0), *limits) for name, most, _, *limits in inventories]
            )
        provider = self._index.intern_provider(inventories, unused.traits, unused.aggregates)
        decoded = self[number] = provider, unused.distance
        return decoded

    def tree_class(self, numbers: Sequence[int]) -> TreeClass:
        """Return the class of a tree whose providers have these contents."""
        decoded = [self[number] for number in numbers]
        parents = [place - distance for place, (_, distance) in enumerate(decoded)]
        return self._index.intern_tree(tuple([provider for provider, _ in decoded]), tuple(parents))


def _decode_unused(attributes: Sequence[_Attribute]) -> _Unused:
    assert isinstance(attributes[0], int)
    inventories = tuple(each for each in attributes if isinstance(each, ClassInventory))
    traits = tuple(sorted(chain.from_iterable(each.names for each in attributes if isinstance(each, _Traits))))
    return _Unused(
        attributes[0], inventories, traits, frozenset(each.uuid for each in attributes if isinstance(each, _Aggregate))
    )


def _inventory(
    class_name: str, total: int, reserved: int, allocation_ratio: float, min_unit: int, max_unit: int, step_size: int
) -> ClassInventory:
    """A row of inventories, nothing used of it yet."""
    return ClassInventory(class_name, capacity(total, reserved, allocation_ratio), 0, min_unit, max_unit, step_size)


def _add_inventories(contents: _Contents, connection: Connection, having: str, index: TreeIndex) -> dict[int, str]:
    """In one order of the classes, so that equal providers have their inventories in equal order; their names by id."""
    names: dict[int, str] = {}
    for class_id, *columns, holders in sorted(statements.read_inventories(connection, having), key=_CLASS_ID):
        inventory = _inventory(*columns)
        names[class_id] = inventory.class_name
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


def _add_usages(contents: _Contents, connection: Connection, having: str, class_names: Mapping[int, str]) -> None:
    """The last attributes, since they differ most: what is before them is decoded once for many providers."""
    for class_id, used, holders in statements.read_usages(connection, having):
        if class_id in class_names:
            contents.add(_Usage(class_names[class_id], int(used)), _decode_ids(holders))


def _put_trees(
    index: TreeIndex, ids: Sequence[int], roots: Sequence[int], uuids: Sequence[str], contents: _Contents
) -> None:
    """The trees: from each root's place on to the next one's."""
    numbers, decoded = tuple(map(contents.numbers.__getitem__, ids)), _DecodedContents(index, contents)
    tree_classes: dict[tuple[int, ...], TreeClass] = {}
    for start, end in pairwise((*roots, len(ids))):
        key = numbers[start:end]
        tree_class = tree_classes.get(key)
        if tree_class is None:
            tree_class = tree_classes[key] = decoded.tree_class(key)
        index.put(ids[start], tree_class, uuids[start:end])
