"""Decodes rows into the trees of an index, with identical trees in one class: `DecodedTrees`.

A number stands for the content of a provider, which is a list of attributes. Each further attribute replaces the number
by that of the longer list. Equal numbers mean equal contents, and only distinct contents are decoded. Amounts in use,
of which few are equal, are kept separately, in a column per class.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, count, pairwise, repeat
from operator import attrgetter, itemgetter, ne, sub
from struct import unpack
from typing import Final, NamedTuple

from placebench.errors import DatabaseError
from placebench.lab.reference.candidates.combinations import capacity
from placebench.lab.reference.candidates.dedup.statements import Row, TreeRows
from placebench.lab.reference.candidates.dedup.tree_index import (
    ROOT,
    InventoryType,
    ProviderType,
    TreeClass,
    TreeIndex,
    TreeLayout,
)
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.results import by_orjson

_CLASS_ID: Final = itemgetter(0)
_ROOT_ID: Final = attrgetter("root_id")


class DecodedTrees:
    """Trees that were decoded into an index, and can be updated if only amounts in use change."""

    def __init__(self, rows: TreeRows, index: TreeIndex, only: Collection[int] | None = None) -> None:
        """Put the trees into the index. Providers below a provider without a root are skipped.

        Args:
            rows: The rows of the trees.
            index: The index that gets them.
            only: The roots of the trees to put into the index; None: all.

        Raises:
            DatabaseError: A uuid cannot be written into JSON as it is.
        """
        encoded_ids, encoded_parents, uuids = rows.providers
        ids, parents = decode_ids(encoded_ids), decode_ids(encoded_parents)
        quoted = _quote_uuids(uuids, len(ids))
        try:
            roots, distances = _roots_and_distances(ids, parents)
        except KeyError:
            ids, parents, quoted = _drop_unrooted(ids, parents, quoted)
            roots, distances = _roots_and_distances(ids, parents)
        contents, memberships = _Contents(ids, distances), _Contents()
        self._class_names = _add_inventories(contents, rows.inventories)
        _add_traits(contents, rows.traits)
        for uuid, members in rows.aggregates or ():
            memberships.add(uuid, decode_ids(members))
        self.rows = rows
        self.index = index
        self._ids = ids
        self._roots = roots
        self._none = (0,) * len(ids)
        self._used = self._columns(rows.usages)
        self._trees: list[_Tree] = []
        trees = self._decode(contents, memberships, quoted)
        self._put(trees if only is None else (tree for tree in trees if tree.root_id in only))

    @property
    def root_ids(self) -> Iterator[int]:
        """The ids of the roots, in ascending order."""
        return (tree.root_id for tree in self._trees)

    def use(self, rows: TreeRows) -> None:
        """Replace the trees whose amounts in use differ in these rows; all other rows must be equal."""
        before, self.rows, self._used = self._used, rows, self._columns(rows.usages)
        places: set[int] = set()
        for name in before.keys() | self._used.keys():
            changed = map(ne, before.get(name, self._none), self._used.get(name, self._none))
            places.update(compress(count(), changed))
        self._put(self._trees[number] for number in {bisect_right(self._roots, place) - 1 for place in places})

    def put_again(self, root_ids: Iterable[int]) -> None:
        """Put the trees with these roots, which the index no longer has, into it; other roots are left out."""
        trees = self._trees
        places = ((root_id, bisect_left(trees, root_id, key=_ROOT_ID)) for root_id in root_ids)
        self._put(trees[place] for root_id, place in places if place < len(trees) and trees[place].root_id == root_id)

    def _columns(self, usages: Iterable[Row]) -> dict[str, tuple[int, ...]]:
        """Return, by class name, a column with the amount in use at each provider."""
        return {
            self._class_names[class_id]: _column(
                dict(zip(decode_ids(holders), unpack(f">{len(amounts) // 8}q", amounts), strict=True)), self._ids
            )
            for class_id, holders, amounts, _ in usages
            if class_id in self._class_names
        }

    def _decode(self, contents: "_Contents", memberships: "_Contents", uuids: Sequence[str]) -> Iterator["_Tree"]:
        """Yield the trees; the caller must put each into the index before the next, so that layouts exist only once."""
        index, ids = self.index, self._ids
        providers = Memo[int, _Provider](lambda number: _decode_provider(index, contents.attributes(number)))
        content_of = Memo[tuple[int, ...], _Content](
            lambda numbers: _Content.of([providers[number] for number in numbers], index)
        )
        aggregates = Memo[int, frozenset[str]](lambda number: frozenset(map(str, memberships.attributes(number))))
        numbers, groups = _column(contents.numbers, ids), _column(memberships.numbers, ids)
        for start, end in pairwise((*self._roots, len(ids))):
            content = content_of[numbers[start:end]]
            around = tuple([aggregates[number] for number in groups[start:end]])
            self._trees.append(_Tree(start, ids[start], content, around, uuids[start:end]))
            yield self._trees[-1]

    def _put(self, trees: Iterable["_Tree"]) -> None:
        """Put the trees into the index, or replace them."""
        index, columns, none = self.index, self._used, self._none
        classes: dict[object, TreeClass] = {}
        for start, root_id, content, aggregates, uuids in trees:
            used = tuple([columns.get(name, none)[start + place] for place, name in content.used])
            key = content, used, aggregates
            tree_class = classes.get(key)
            if tree_class is None:
                tree_class = classes[key] = content.in_index(index).tree_class(used, aggregates)
            index.remove(root_id)
            index.put(root_id, tree_class, uuids)


def decode_ids(encoded: bytes) -> tuple[int, ...]:
    """Return the ids, four bytes each."""
    return unpack(f">{len(encoded) // 4}i", encoded)


def _quote_uuids(uuids: str, count: int) -> list[str]:
    """Split the uuids, which are joined by `","`, and return each as quoted JSON text."""
    if not count:
        return []
    text = f'"{uuids}"'
    quoted = text.split(",")
    if len(quoted) != count or text.count('"') != 2 * count or "\\" in text:
        raise DatabaseError("resource_providers.uuid: one is not a UUID; look for those of another length than 36")
    return quoted


def _roots_and_distances(ids: Sequence[int], parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the places of the roots, and for each provider how many places before it its parent is.

    The distance of a root is 1, as if its parent were at place -1 of its tree. Raises KeyError for a missing parent.
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
    """Remove the providers below a missing one, which was not read because it has no root."""
    rows, there = list(zip(ids, parents, uuids, strict=True)), {ROOT, *ids}
    while lost := {own for own, parent, _ in rows if parent not in there}:
        rows = [row for row in rows if row[0] not in lost]
        there -= lost
    return tuple(own for own, _, _ in rows), tuple(parent for _, parent, _ in rows), [uuid for _, _, uuid in rows]


class _Inventory(NamedTuple):
    """A provider's inventory of one class, without the amount in use."""

    type: InventoryType
    capacity: int
    max_unit: int
    text: str  # the JSON in a summary, with %d for the amount in use

    @classmethod
    def of(
        cls, name: str, total: int, reserved: int, ratio: float, min_unit: int, max_unit: int, step_size: int
    ) -> "_Inventory":
        """Return the inventory in the columns of a row."""
        most = capacity(total, reserved, ratio)
        text = f'{by_orjson(name).decode().replace("%", "%%")}:{{"capacity":{most},"used":%d}}'
        return cls(InventoryType(name, min_unit, step_size), most, max_unit, text)


class _Traits(NamedTuple):
    """The names of traits that exactly the same providers have."""

    names: tuple[str, ...]


# An int is how many places before the provider its parent is; a str is the uuid of an aggregate.
_Attribute = int | str | _Inventory | _Traits

_NOTHING: Final = 0  # the number of the empty content


class _Contents:
    """The contents of providers, stored as numbers: a number stands for a shorter content plus one attribute."""

    def __init__(self, provider_ids: Iterable[int] = (), distances: Sequence[int] = ()) -> None:
        """distances: the first attribute of each provider: how many places before it its parent is."""
        self._attributes: list[_Attribute] = [_NOTHING]
        self._before = [_NOTHING]
        first = {distance: self.extend(_NOTHING, distance) for distance in dict.fromkeys(distances)}
        self.numbers = defaultdict(int, zip(provider_ids, map(first.__getitem__, distances), strict=True))

    def add(self, attribute: _Attribute, provider_ids: Sequence[int]) -> None:
        """Add an attribute to these providers, each of which is listed once; the loop runs in C."""
        numbers, extended = self.numbers, _ExtendedContents(self, attribute)
        numbers.update(
            zip(provider_ids, map(extended.__getitem__, map(numbers.__getitem__, provider_ids)), strict=True)
        )

    def extend(self, number: int, attribute: _Attribute) -> int:
        """Return a new number, for the content with this number extended by an attribute."""
        self._attributes.append(attribute)
        self._before.append(number)
        return len(self._attributes) - 1

    def attributes(self, number: int) -> list[_Attribute]:
        """Return the attributes of the content with this number, in the order in which they were added."""
        found = []
        while number != _NOTHING:
            found.append(self._attributes[number])
            number = self._before[number]
        return found[::-1]


class _ExtendedContents(dict[int, int]):
    """Maps the number of each content to that of the content extended by the attribute."""

    def __init__(self, contents: _Contents, attribute: _Attribute) -> None:
        self._contents = contents
        self._attribute = attribute

    def __missing__(self, number: int) -> int:
        extended = self[number] = self._contents.extend(number, self._attribute)
        return extended


def _add_inventories(contents: _Contents, rows: Iterable[Row]) -> dict[int, str]:
    """Add the inventories, ordered by class so that equal providers have equal contents; return class names by id."""
    names: dict[int, str] = {}
    for class_id, *columns, holders in sorted(rows, key=_CLASS_ID):
        inventory = _Inventory.of(*columns)
        names[class_id] = inventory.type.class_name
        contents.add(inventory, decode_ids(holders))
    return names


def _add_traits(contents: _Contents, rows: Iterable[Row]) -> None:
    """Add the traits; those that the same providers have, such as the features of a processor, form one attribute."""
    names: defaultdict[bytes, list[str]] = defaultdict(list)
    for name, holders in rows:
        names[holders].append(name)
    for ids, together in names.items():
        contents.add(_Traits(tuple(together)), decode_ids(ids))


class _Provider(NamedTuple):
    """The decoded content of a provider."""

    distance: int  # how many places before the provider its parent is
    type: ProviderType
    inventories: list[_Inventory]
    text: str  # the resources in a summary, with %d for each amount in use


@dataclass(frozen=True, slots=True, eq=False)
class _Content:
    """The common content of trees whose providers have equal contents; compared by identity."""

    layout: TreeLayout
    capacities: list[int]  # the capacities of the layout's inventories
    max_units: list[int]
    used: list[tuple[int, str]]  # for each inventory, the place of its provider and its class
    text: str  # the texts of all providers, one per line

    @classmethod
    def of(cls, providers: Sequence[_Provider], index: TreeIndex) -> "_Content":
        """Return the content of trees with these providers, the root first."""
        distances, types, inventories, texts = zip(*providers, strict=True)
        layout = index.intern_tree(types, tuple(map(sub, count(), distances)))
        together = [*chain.from_iterable(inventories)]
        return cls(
            layout,
            [each.capacity for each in together],
            [each.max_unit for each in together],
            [(place, each.class_name) for place, each in layout.inventories],
            "\n".join(texts),
        )

    def in_index(self, index: TreeIndex) -> "_Content":
        """Return the content with the layout that the index has by now, if trees that were put later brought it."""
        layout = index.intern_tree(self.layout.providers, self.layout.parents)
        return self if layout is self.layout or not layout.classes else replace(self, layout=layout)

    def tree_class(self, used: tuple[int, ...], aggregates: tuple[frozenset[str], ...]) -> TreeClass:
        """Return the class of trees with these amounts in use of each inventory, and these aggregates."""
        most = tuple(map(min, map(sub, self.capacities, used), self.max_units))
        return TreeClass(self.layout, most, tuple((self.text % used).split("\n")), aggregates)


class _Tree(NamedTuple):
    start: int  # the place of its root among all providers
    root_id: int
    content: _Content
    aggregates: tuple[frozenset[str], ...]  # the aggregates of each provider
    uuids: Sequence[str]


def _column(values: Mapping[int, int], ids: Sequence[int]) -> tuple[int, ...]:
    """Return the value of each provider, 0 if it has none."""
    return tuple(map(values.get, ids, repeat(0)))


def _decode_provider(index: TreeIndex, attributes: Sequence[_Attribute]) -> _Provider:
    distance, inventories = attributes[0], [each for each in attributes if isinstance(each, _Inventory)]
    assert isinstance(distance, int)
    traits = sorted(chain.from_iterable(each.names for each in attributes if isinstance(each, _Traits)))
    provider_type = index.intern_provider(tuple([each.type for each in inventories]), tuple(traits))
    return _Provider(distance, provider_type, inventories, ",".join([each.text for each in inventories]))
