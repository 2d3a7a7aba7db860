"""Trees read from PostgreSQL into a tree index, providers of equal content as one class: `fetch`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from operator import itemgetter, sub
from struct import unpack
from typing import Final, NamedTuple

from sqlalchemy import Connection

from placebench.errors import DatabaseError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup import statements
from placebench.reference.candidates.dedup.statements import Trees
from placebench.reference.candidates.dedup.tree_index import ROOT, Kind, Picture, Shape, Stock
from placebench.reference.store.candidate_queries import SHARING_TRAIT


class _Used(NamedTuple):
    """What is used of a class."""

    class_name: str
    amount: int


class _HeldTrait(NamedTuple):
    """A trait."""

    trait: str


class _JoinedAggregate(NamedTuple):
    """An aggregate, by its uuid."""

    aggregate: str


_Attribute = (
    int | Stock | _Used | _HeldTrait | _JoinedAggregate
)  # the first one: how many places before it the provider's parent stands


def _provider_class(picture: Picture, letters: Iterable[_Attribute]) -> Kind:
    """The provider that the letters spell; what is used of a class that it has no inventory of does not count."""
    stocks, traits, aggregates = [], [], []
    used: dict[str, int] = {}
    for letter in letters:
        if isinstance(letter, Stock):
            stocks.append(letter)
        elif isinstance(letter, _HeldTrait):
            traits.append(letter.trait)
        elif isinstance(letter, _Used):
            used[letter.class_name] = letter.amount
        elif isinstance(letter, _JoinedAggregate):
            aggregates.append(letter.aggregate)
    if used:
        stocks = [each._replace(used=used[each.class_name]) if each.class_name in used else each for each in stocks]
    return picture.kind(tuple(stocks), tuple(sorted(traits)), frozenset(aggregates))


def _inventory(
    class_name: str,
    total: int,
    reserved: int,
    allocation_ratio: float,
    min_unit: int,
    max_unit: int,
    step_size: int,
) -> Stock:
    """A row of inventories as a stock that nothing is used of yet; its capacity truncated as Placement truncates it."""
    return Stock(class_name, int((total - reserved) * allocation_ratio), 0, min_unit, max_unit, step_size)


_EMPTY = 0  # the word without letters, of whom nobody named at the start


class _Interning:
    """Words by provider; each word is the number of a letter and of the word before it."""

    def __init__(self, first: Sequence[_Attribute], provider_ids: Iterable[int]) -> None:
        """Each provider with its first letter."""
        self._letters: list[_Attribute] = [_EMPTY]
        self._before = [_EMPTY]
        begun = {letter: self.longer(_EMPTY, letter) for letter in dict.fromkeys(first)}
        self.words = defaultdict(int, zip(provider_ids, map(begun.__getitem__, first), strict=True))

    def add(self, letter: _Attribute, provider_ids: Sequence[int]) -> None:
        """One more letter for these providers, who get each letter once; without a loop of Python's own."""
        words, longer = self.words, _Longer(self, letter)
        words.update(zip(provider_ids, map(longer.__getitem__, map(words.__getitem__, provider_ids)), strict=True))

    def longer(self, word: int, letter: _Attribute) -> int:
        """A new word."""
        self._letters.append(letter)
        self._before.append(word)
        return len(self._letters) - 1

    def letters(self, word: int) -> list[_Attribute]:
        """Those of the word, the first one first."""
        found = []
        while word != _EMPTY:
            found.append(self._letters[word])
            word = self._before[word]
        return found[::-1]


class _Longer(dict[int, int]):
    """The word that each word becomes with the letter."""

    def __init__(self, spelling: _Interning, letter: _Attribute) -> None:
        self._spelling = spelling
        self._letter = letter

    def __missing__(self, word: int) -> int:
        longer = self[word] = self._spelling.longer(word, self._letter)
        return longer


ALL_TREES: Final = Trees()
_CLASS_ID: Final = itemgetter(0)


def fetch(connection: Connection, picture: Picture, trees: Trees = ALL_TREES, *, aggregates: bool = True) -> list[int]:
    """Put the trees into the picture, as they are in the connection's transaction, and say the ids of their roots.

    4 round trips, 5 with aggregates, 1 if there is no such tree. What is below a provider without a root is left out.
    aggregates: whether the kinds are to know them; they always do where a provider shares.
    Raises DatabaseError for a uuid that cannot stand in JSON as it is.
    """
    encoded_ids, encoded_parents, uuids = statements.providers(connection, trees)
    if encoded_ids is None:
        return []
    ids, parents = _decode_ids(encoded_ids), _decode_ids(encoded_parents)
    quoted = _quote_uuids(uuids, len(ids))
    try:
        roots, steps = _roots_and_distances(ids, parents)
    except KeyError:
        ids, parents, quoted = _drop_unrooted(ids, parents, quoted)
        roots, steps = _roots_and_distances(ids, parents)
    spelling, having = _Interning(steps, ids), trees.having(ids)
    _intern_inventories(spelling, connection, having, picture)
    _intern_names(spelling, connection, having, picture, aggregates=aggregates)
    _put_trees(picture, ids, roots, quoted, spelling)
    return [ids[place] for place in roots]


def fetch_names(connection: Connection, picture: Picture, request: CandidateRequest) -> None:
    """What only this request asks about: names that nobody has, and the trees of in_tree; up to 3 round trips."""
    asked = {*request.root_required, *request.root_forbidden}
    asked.update(name for group in request.groups for name in group.forbidden.union(*group.required))
    if unseen := asked - picture.traits:
        picture.traits.update(statements.existing(connection, "traits", unseen))
    if unseen := {name for group in request.groups for name, _ in group.resources} - picture.classes:
        picture.classes.update(statements.existing(connection, "resource_classes", unseen))
    uuids = {group.in_tree for group in request.groups if group.in_tree is not None}
    if uuids:
        picture.named.update(statements.roots_above(connection, uuids))


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
    """The places of the roots, and how many places before each provider its parent stands.

    A root's parent stands, by this count, at place -1 of its tree. Raises KeyError for a parent that is not there.
    """
    roots = [place for place, parent in enumerate(parents) if parent == ROOT]
    places = dict(zip(ids, range(len(ids)), strict=True))
    places[ROOT] = 0
    steps = list(map(sub, count(), map(places.__getitem__, parents)))
    for place in roots:
        steps[place] = 1
    return roots, steps


def _drop_unrooted(
    ids: Sequence[int], parents: Sequence[int], uuids: Sequence[str]
) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """The same without the providers below one that is not there, because it has no root."""
    rows, there = list(zip(ids, parents, uuids, strict=True)), {ROOT, *ids}
    while lost := {own for own, parent, _ in rows if parent not in there}:
        rows = [row for row in rows if row[0] not in lost]
        there -= lost
    return tuple(own for own, _, _ in rows), tuple(parent for _, parent, _ in rows), [uuid for _, _, uuid in rows]


def _intern_inventories(spelling: _Interning, connection: Connection, having: str, picture: Picture) -> None:
    """In one order of the classes, so that equal providers have their stocks in equal order."""
    names: dict[int, str] = {}
    for class_id, *columns, holders in sorted(statements.inventories(connection, having), key=_CLASS_ID):
        stock = _inventory(*columns)
        names[class_id] = stock.class_name
        spelling.add(stock, _decode_ids(holders))
    picture.classes.update(names.values())
    for class_id, used, holders in statements.usages(connection, having):
        if class_id in names:
            spelling.add(_Used(names[class_id], int(used)), _decode_ids(holders))


def _intern_names(
    spelling: _Interning, connection: Connection, having: str, picture: Picture, *, aggregates: bool
) -> None:
    for trait, holders in statements.held_traits(connection, having):
        picture.traits.add(trait)
        spelling.add(_HeldTrait(trait), _decode_ids(holders))
    if aggregates or SHARING_TRAIT in picture.traits:
        for uuid, members in statements.aggregates(connection, having):
            spelling.add(_JoinedAggregate(uuid), _decode_ids(members))


def _put_trees(
    picture: Picture, ids: Sequence[int], roots: Sequence[int], uuids: Sequence[str], spelling: _Interning
) -> None:
    """The trees: from each root's place on to the next one's."""
    words, spelt = tuple(map(spelling.words.__getitem__, ids)), _Decoded(picture, spelling)
    shapes: dict[tuple[int, ...], Shape] = {}
    for start, end in pairwise((*roots, len(ids))):
        key = words[start:end]
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = spelt.shape(key)
        picture.put(ids[start], shape, uuids[start:end])


class _Decoded(dict[int, tuple[Kind, int]]):
    """The kind that each word spells, and how many places before it its parent stands."""

    def __init__(self, picture: Picture, spelling: _Interning) -> None:
        self._picture = picture
        self._spelling = spelling

    def __missing__(self, word: int) -> tuple[Kind, int]:
        letters = self._spelling.letters(word)
        assert isinstance(letters[0], int)
        spelt = self[word] = _provider_class(self._picture, letters), letters[0]
        return spelt

    def shape(self, words: Sequence[int]) -> Shape:
        """Of a tree whose providers are these."""
        spelt = [self[word] for word in words]
        parents = [place - steps for place, (_, steps) in enumerate(spelt)]
        return self._picture.shape(tuple([kind for kind, _ in spelt]), tuple(parents))
