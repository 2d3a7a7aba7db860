"""Versions of the trees in a database, each made from the one before by reading only what changed (`TreeVersion`).

A row of the present that was written before the oldest transaction of the earlier version's snapshot has been there in
the earlier version too, unchanged, since PostgreSQL writes a changed row anew. So the providers of which each row is
that old have lost rows at most; and if there are as many rows of theirs as there were, they have lost none. All other
providers are read again, tree by tree, and so are those that have lost rows. If a table was replaced or altered, or
the connection may be to a server that has crashed in between, everything is read anew. So a version is right for any
writer, whether or not it raises generations.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic
from typing import Final

from sqlalchemy import Connection

from placebench.lab.reference.candidates.dedup import statements
from placebench.lab.reference.candidates.dedup.decode import DecodedTrees, decode_ids
from placebench.lab.reference.candidates.dedup.fetch import names_in, read_rows
from placebench.lab.reference.candidates.dedup.statements import ProvidersState, TableChanges, TreeRows, Trees
from placebench.lab.reference.candidates.dedup.tree_index import ROOT, Names, TreeIndex
from placebench.lab.reference.store.candidate_queries import SHARING_TRAIT
from placebench.lab.reference.store.change_log import PgSnapshot

_MAX_TRANSACTIONS: Final = 2**30  # a snapshot that is older is not compared: ages of rows are 32-bit integers
_SHARE_READ_AGAIN: Final = 0.25  # if a larger share of the trees has changed, all are read


class TreesReadTogether:
    """The rows of trees that were read in one snapshot."""

    def __init__(self, rows: TreeRows) -> None:
        """rows: as `read_rows` returns them."""
        self.rows = rows

    @cached_property
    def root_of(self) -> Mapping[int, int] | None:
        """The root of each provider; None if one is below a provider that was not read."""
        roots: dict[int, int] = {}
        encoded_ids, encoded_parents, _ = self.rows.providers
        ids, root = decode_ids(encoded_ids), ROOT
        known = {ROOT, *ids}
        for provider_id, parent in zip(ids, decode_ids(encoded_parents), strict=True):
            if parent not in known:
                return None
            root = provider_id if parent == ROOT else root
            roots[provider_id] = root
        return roots

    @cached_property
    def row_counts(self) -> tuple[Counter[int | None], ...]:
        """The number of rows of each tree by its root, for each table in the order of `TableChanges.row_counts`."""
        rows, root_of = self.rows, self.root_of or {}

        def count(holders: Iterable[bytes]) -> Counter[int | None]:
            return Counter(root_of.get(each) for encoded in holders for each in decode_ids(encoded))

        usages: Counter[int | None] = Counter()
        for _, holders, _, numbers in rows.usages:
            for provider_id, number in zip(decode_ids(holders), decode_ids(numbers), strict=True):
                usages[root_of.get(provider_id)] += number
        counts = [
            count([rows.providers[0]]),
            count(holders for *_, holders in rows.inventories),
            count(holders for _, holders in rows.traits),
            usages,
        ]
        return (*counts, *([] if rows.aggregates is None else [count(members for _, members in rows.aggregates)]))


@dataclass(frozen=True, slots=True, eq=False)
class TreeVersion:
    """The trees that a snapshot shows: those of a base, except for some that were read again later."""

    base: TreesReadTogether
    read_again: Mapping[int, TreesReadTogether]
    """For the root of each tree that may differ from the base: what was read last, which may lack the tree."""
    roots_read_again: Mapping[int, int]
    """The root of each provider of these trees."""
    names: Names
    seen: str
    changes: TableChanges
    summed: bool
    read_at_s: float

    @classmethod
    def of(cls, connection: Connection, rows: TreeRows, seen: str, *, summed: bool, read_at_s: float) -> "TreeVersion":
        """Return the version with these rows of all trees, which were read in the same snapshot; 1 round trip.

        Args:
            connection: The connection that read the rows.
            rows: The rows.
            seen: The snapshot (`ProvidersState.seen`).
            summed: As in `statements.select_usages`.
            read_at_s: The time at which reading began.
        """
        since, aggregates = _snapshot(seen).oldest, rows.aggregates is not None
        changes = statements.read_changes(connection, since, aggregates=aggregates, summed=summed)
        return cls(TreesReadTogether(rows), {}, {}, names_in(rows), seen, changes, summed, read_at_s)

    @property
    def has_aggregates(self) -> bool:
        """Whether memberships in aggregates were read."""
        return self.base.rows.aggregates is not None

    def precedes(self, connected_at_s: float, state: ProvidersState) -> bool:
        """Return whether this state is that of the version, or a later one of the same server.

        That is not known for a connection that is newer than the rows: PostgreSQL may have crashed in between, and with
        synchronous_commit=off, transactions that were visible may then be lost, and their ids used again.

        connected_at_s: when the connection that sees the state was first used.
        """
        if state.seen is None or self.read_at_s < connected_at_s:
            return False
        if state.seen == self.seen:
            return True
        before, now = _snapshot(self.seen), _snapshot(state.seen)
        is_same_server = self.seen.partition(" ")[2] == state.seen.partition(" ")[2]
        return is_same_server and now.follows(before) and now.end - before.oldest < _MAX_TRANSACTIONS

    def follow(self, connection: Connection, state: ProvidersState) -> "TreeVersion | None":
        """Return the version that the connection sees, which this one must precede; None if all must be read.

        1 round trip if no row of the trees has changed, 2 if a few have, and 2 more if rows were only deleted.
        """
        assert state.seen is not None
        read_at_s, since = monotonic(), _snapshot(self.seen).oldest
        now = statements.read_changes(connection, since, aggregates=self.has_aggregates, summed=self.summed)
        before = self.changes
        if not now.is_plain or now.new_names or (now.tables, now.name_counts) != (before.tables, before.name_counts):
            return None
        roots = self._roots_of(now)
        if roots is None or self._are_too_many(roots):
            return None
        if not roots and now.row_counts == before.row_counts:
            return replace(self, seen=state.seen, changes=now, read_at_s=read_at_s)
        read = self._read_again(connection, roots)
        if lost := self._places_without_rows(now, roots, read):
            roots |= self._roots_without_rows(connection, lost)
            if self._are_too_many(roots):
                return None
            read = self._read_again(connection, roots)
            if self._places_without_rows(now, roots, read):
                return None
        names = names_in(read.rows)
        if read.root_of is None or not now.provider_ids <= read.root_of.keys():
            return None
        if SHARING_TRAIT in names.traits and not self.has_aggregates:
            return None
        names.update(self.names)
        read_again = {**self.read_again, **dict.fromkeys(roots, read)}
        roots_read_again = {**self.roots_read_again, **read.root_of}
        return TreeVersion(self.base, read_again, roots_read_again, names, state.seen, now, self.summed, read_at_s)

    def _read_again(self, connection: Connection, roots: Collection[int]) -> TreesReadTogether:
        rows = read_rows(connection, Trees.of(roots), aggregates=self.has_aggregates, summed=self.summed)
        return TreesReadTogether(rows)

    def _places_without_rows(self, now: TableChanges, roots: Collection[int], read: TreesReadTogether) -> list[int]:
        """Return the places of the tables in which other trees than these do not have as many rows as before."""
        places = []
        for place, (count, count_before) in enumerate(zip(now.row_counts, self.changes.row_counts, strict=True)):
            others = count - sum(read.row_counts[place].values())
            if others != count_before - sum(self._row_count(place, root_id) for root_id in roots):
                places.append(place)
        return places

    def _roots_without_rows(self, connection: Connection, places: Iterable[int]) -> set[int]:
        """Return the roots of the trees that have other numbers of rows than before in the tables at these places.

        A release deletes rows of allocations, and changes nothing else of the provider.
        """
        roots = set[int]()
        root_of = {**(self.base.root_of or {}), **self.roots_read_again}
        for place in filter(None, places):
            ids, numbers = statements.read_row_counts(connection, place, summed=self.summed)
            present = Counter[int | None]()
            for provider_id, number in zip(decode_ids(ids or b""), decode_ids(numbers or b""), strict=True):
                present[root_of.get(provider_id)] += number
            known = self.base.row_counts[0].keys() | self.read_again.keys()
            roots.update(each for each in known if each and present[each] != self._row_count(place, each))
        return roots

    def _are_too_many(self, roots: set[int]) -> bool:
        return len(roots | self.read_again.keys()) > _SHARE_READ_AGAIN * len(self.base.row_counts[0]) + 100

    def _roots_of(self, changes: TableChanges) -> set[int] | None:
        """Return the roots of all trees that have or had a changed provider; None if one of these has no root."""
        roots: set[int | None] = set(changes.root_ids)
        root_of = self.base.root_of
        if root_of is None or None in roots:
            return None
        for provider_id in changes.provider_ids:
            roots.update((root_of.get(provider_id), self.roots_read_again.get(provider_id)))
        return {root_id for root_id in roots if root_id is not None}

    def _row_count(self, place: int, root_id: int) -> int:
        return self.read_again.get(root_id, self.base).row_counts[place][root_id]


def _snapshot(seen: str) -> PgSnapshot:
    return PgSnapshot.parse(seen.partition(" ")[0])


class ShownVersion:
    """An index that shows one version at a time, and is changed tree by tree to show another one of the same base."""

    def __init__(self, version: TreeVersion) -> None:
        self.index = TreeIndex()
        self._base = version.base
        self._decoded = DecodedTrees(version.base.rows, self.index)
        self._read_again: Mapping[int, TreesReadTogether] = {}
        self.show(version)

    def can_show(self, version: TreeVersion) -> bool:
        """Return whether the index shows the version, or may be changed to it: it is not lent, and the bases are equal.

        Equal bases differ only in amounts in use.
        """
        if version.base is self._base and version.read_again is self._read_again:
            return True
        is_equal = version.base is self._base or version.base.rows.differ_in_usages_only(self._base.rows)
        return is_equal and not self.index.is_lent

    def show(self, version: TreeVersion) -> None:
        """Replace the trees that differ in this version, which the index must be able to show."""
        if version.base is not self._base:
            self._replace_trees({})
            self._decoded.use(version.base.rows)
            self._base = version.base
        self._replace_trees(version.read_again)

    def _replace_trees(self, read_again: Mapping[int, TreesReadTogether]) -> None:
        before, self._read_again = self._read_again, read_again
        if before is read_again:
            return
        differing: dict[TreesReadTogether | None, list[int]] = {}
        for root_id in before.keys() | read_again.keys():
            if (source := read_again.get(root_id)) is not before.get(root_id):
                differing.setdefault(source, []).append(root_id)
                self.index.remove(root_id)
        for source, root_ids in differing.items():
            if source is None:
                self._decoded.put_again(root_ids)
            else:
                DecodedTrees(source.rows, self.index, only=root_ids)
