"""Trees read from PostgreSQL into a picture: the key piece is `fetch`."""

from collections.abc import Sequence
from itertools import count, pairwise
from operator import itemgetter, sub
from struct import unpack
from typing import Final

from sqlalchemy import Connection

from placebench.errors import DatabaseError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup import statements
from placebench.reference.candidates.dedup.interning import Holds, Joins, Spelling, Used, kind_of, stock_of
from placebench.reference.candidates.dedup.statements import Trees
from placebench.reference.candidates.dedup.tree_index import ROOT, Kind, Picture, Shape
from placebench.reference.store.candidate_queries import SHARING_TRAIT

ALL: Final = Trees()
_CLASS_ID: Final = itemgetter(0)


def fetch(connection: Connection, picture: Picture, trees: Trees = ALL, *, aggregates: bool = True) -> list[int]:
    """Put the trees into the picture, as they are in the connection's transaction, and say the ids of their roots.

    4 round trips, 5 with aggregates, 1 if there is no such tree. What is below a provider without a root is left out.
    aggregates: whether the kinds are to know them; they always do where a provider shares.
    Raises DatabaseError for a uuid that cannot stand in JSON as it is.
    """
    encoded_ids, encoded_parents, uuids = statements.providers(connection, trees)
    if encoded_ids is None:
        return []
    ids, parents = _numbers(encoded_ids), _numbers(encoded_parents)
    quoted = _quoted(uuids, len(ids))
    try:
        roots, steps = _roots_and_steps(ids, parents)
    except KeyError:
        ids, parents, quoted = _reached(ids, parents, quoted)
        roots, steps = _roots_and_steps(ids, parents)
    spelling, having = Spelling(steps, ids), trees.having(ids)
    _spell_stocks(spelling, connection, having, picture)
    _spell_names(spelling, connection, having, picture, aggregates=aggregates)
    _put(picture, ids, roots, quoted, spelling)
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


def _numbers(encoded: bytes) -> tuple[int, ...]:
    return unpack(f">{len(encoded) // 4}i", encoded)


def _quoted(uuids: str, count: int) -> list[str]:
    """The uuids, which have `","` between them, as JSON text each."""
    text = f'"{uuids}"'
    quoted = text.split(",")
    if len(quoted) != count or text.count('"') != 2 * count or "\\" in text:
        raise DatabaseError("resource_providers.uuid: one is no UUID; look for those of another length than 36")
    return quoted


def _roots_and_steps(ids: Sequence[int], parents: Sequence[int]) -> tuple[list[int], list[int]]:
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


def _reached(
    ids: Sequence[int], parents: Sequence[int], uuids: Sequence[str]
) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """The same without the providers below one that is not there, because it has no root."""
    rows, there = list(zip(ids, parents, uuids, strict=True)), {ROOT, *ids}
    while lost := {own for own, parent, _ in rows if parent not in there}:
        rows = [row for row in rows if row[0] not in lost]
        there -= lost
    return tuple(own for own, _, _ in rows), tuple(parent for _, parent, _ in rows), [uuid for _, _, uuid in rows]


def _spell_stocks(spelling: Spelling, connection: Connection, having: str, picture: Picture) -> None:
    """In one order of the classes, so that equal providers have their stocks in equal order."""
    names: dict[int, str] = {}
    for class_id, *columns, holders in sorted(statements.inventories(connection, having), key=_CLASS_ID):
        stock = stock_of(*columns)
        names[class_id] = stock.class_name
        spelling.add(stock, _numbers(holders))
    picture.classes.update(names.values())
    for class_id, used, holders in statements.usages(connection, having):
        if class_id in names:
            spelling.add(Used(names[class_id], int(used)), _numbers(holders))


def _spell_names(
    spelling: Spelling, connection: Connection, having: str, picture: Picture, *, aggregates: bool
) -> None:
    for trait, holders in statements.held_traits(connection, having):
        picture.traits.add(trait)
        spelling.add(Holds(trait), _numbers(holders))
    if aggregates or SHARING_TRAIT in picture.traits:
        for uuid, members in statements.aggregates(connection, having):
            spelling.add(Joins(uuid), _numbers(members))


def _put(picture: Picture, ids: Sequence[int], roots: Sequence[int], uuids: Sequence[str], spelling: Spelling) -> None:
    """The trees: from each root's place on to the next one's."""
    words, spelt = tuple(map(spelling.words.__getitem__, ids)), _Spelt(picture, spelling)
    shapes: dict[tuple[int, ...], Shape] = {}
    for start, end in pairwise((*roots, len(ids))):
        key = words[start:end]
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = spelt.shape(key)
        picture.put(ids[start], shape, uuids[start:end])


class _Spelt(dict[int, tuple[Kind, int]]):
    """The kind that each word spells, and how many places before it its parent stands."""

    def __init__(self, picture: Picture, spelling: Spelling) -> None:
        self._picture = picture
        self._spelling = spelling

    def __missing__(self, word: int) -> tuple[Kind, int]:
        letters = self._spelling.letters(word)
        assert isinstance(letters[0], int)
        spelt = self[word] = kind_of(self._picture, letters), letters[0]
        return spelt

    def shape(self, words: Sequence[int]) -> Shape:
        """Of a tree whose providers are these."""
        spelt = [self[word] for word in words]
        parents = [place - steps for place, (_, steps) in enumerate(spelt)]
        return self._picture.shape(tuple([kind for kind, _ in spelt]), tuple(parents))
