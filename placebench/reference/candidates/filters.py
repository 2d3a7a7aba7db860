"""Which providers a group's traits, aggregates and tree let in: the key piece is `Filters`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from placebench.reference.candidates.search import NothingFitsError, Search
from placebench.reference.lookups.members import holders_of_traits, members_of_aggregates
from placebench.reference.lookups.trees import root_of
from placebench.reference.query import RequestGroup

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Filters:
    """Provider ids that a group asks for and that it refuses."""

    required: tuple[Collection[int], ...]  # for each any-set the holders of one of its traits
    forbidden: Collection[int]  # holders of a forbidden trait
    members: Collection[int] | None  # in an aggregate of every member_of; None: no member_of
    outcasts: Collection[int]  # in a forbidden aggregate
    tree_root_id: int | None  # None: no in_tree

    def admit(self, provider_id: int) -> bool:
        """Whether the provider meets everything but in_tree by itself."""
        return (
            provider_id not in self.forbidden
            and provider_id not in self.outcasts
            and (self.members is None or provider_id in self.members)
            and self.hold_required((provider_id,))
        )

    def admit_at(self, anchor_id: int, provider_id: int) -> bool:
        """Whether the provider may give to a tree: an aggregate on the tree's root spans all of the tree."""
        return (
            provider_id not in self.forbidden
            and provider_id not in self.outcasts
            and anchor_id not in self.outcasts
            and (self.members is None or provider_id in self.members or anchor_id in self.members)
        )

    def hold_required(self, provider_ids: Iterable[int]) -> bool:
        """Whether the providers together hold a trait of every any-set."""
        return all(any(provider_id in holders for provider_id in provider_ids) for holders in self.required)

    def in_tree(self, root_id: int) -> bool:
        """Whether the tree is the one that in_tree names, or none is named."""
        return self.tree_root_id is None or root_id == self.tree_root_id


def read_filters(search: Search, group: RequestGroup) -> Filters:
    """What the group's filters come to; up to 3 round trips.

    In Placement's order: NothingFitsError when nobody is a member, BadRequest for unknown traits, NothingFitsError
    when in_tree names nobody. Unknown aggregates have no members and are no error.
    """
    members, outcasts = _aggregates(search, group)
    required, forbidden = _traits(search, group)
    tree_root_id = None
    if group.in_tree is not None:
        tree_root_id = root_of(search.reader, group.in_tree)
        if tree_root_id is None:
            raise NothingFitsError
    return Filters(required, forbidden, members, outcasts, tree_root_id)


def _aggregates(search: Search, group: RequestGroup) -> tuple[Collection[int] | None, Collection[int]]:
    """The members of every positive set, and of any negative one; 1 round trip or none."""
    uuids = group.not_member_of.union(*group.member_of)
    found = members_of_aggregates(search.reader, uuids)
    outcasts = _any_of(search.ways.collection, found, group.not_member_of)
    if not group.member_of:
        return None, outcasts
    first, *others = (_any_of(search.ways.collection, found, uuids) for uuids in group.member_of)
    members = search.ways.collection(key for key in first if all(key in other for other in others))
    if not members:
        raise NothingFitsError
    return members, outcasts


def _traits(search: Search, group: RequestGroup) -> tuple[tuple[Collection[int], ...], Collection[int]]:
    """The holders of each any-set, and of any forbidden trait; 1 round trip or none."""
    required = [search.trait_ids(alternatives) for alternatives in group.required]
    forbidden = search.trait_ids(group.forbidden)
    found = holders_of_traits(search.reader, {*forbidden, *(key for keys in required for key in keys)})
    collection = search.ways.collection
    return tuple(_any_of(collection, found, keys) for keys in required), _any_of(collection, found, forbidden)


def _any_of(
    collection: Callable[[Iterable[int]], Collection[int]], found: Mapping[_Key, list[int]], keys: Iterable[_Key]
) -> Collection[int]:
    return collection(member for key in keys for member in found[key])
