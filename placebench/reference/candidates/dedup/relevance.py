"""What of a provider matters to one request: the key pieces are `Demands` and `Matter`.

Two providers that matter alike are exchangeable in the search, however else they differ; so are two trees of such
providers. That is why a search per distinct tree is few searches, on data where no two trees are equal too.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from placebench.reference.api.candidates_query import CandidateRequest, RequestGroup
from placebench.reference.candidates.dedup.tree_index import Kind, Stock


class Matter(NamedTuple):
    """Numbers of groups and of demands are bits; what none of them could use is 0, so that more providers are alike."""

    able: int  # groups of which it can give all, or be the provider of one without resources
    gives: int  # demands of the group that spreads: has room, and is not forbidden
    meets: int  # any-sets of that group
    member: bool  # in an aggregate of each member_of of that group
    free: tuple[int, ...]  # the most that it can give of each crowded class
    shares: bool


Likeness = Callable[[Kind, Matter], Hashable]
NO_MATTER: Final = Matter(0, 0, 0, member=False, free=(), shares=False)


def same_provider_class(kind: Kind, matter: Matter) -> Hashable:
    """Equal in everything: each distinct tree is searched."""
    return kind, matter


def same_relevance(_kind: Kind, matter: Matter) -> Hashable:
    """Alike in what the request asks about, however else they differ."""
    return matter


class Ruling(NamedTuple):
    """What a tree's root decides for the whole tree."""

    allowed: bool  # by root_required
    member: bool  # in an aggregate of each member_of of the group that spreads, which spans the tree then
    outcast: bool  # in one that it forbids


class Standing(NamedTuple):
    """What a provider's traits and aggregates decide."""

    admitted: int  # groups whose filters it meets by itself
    spreads: bool  # not refused by the group that spreads
    meets: int
    ruling: Ruling  # as a root


class Demands:
    """The request, asked provider by provider."""

    def __init__(self, request: CandidateRequest, likeness: Likeness = same_relevance) -> None:
        """likeness: which providers are searched once for all of them."""
        self.request = request
        self.likeness = likeness
        self.crowded = _crowded(request)
        self._spreading = next((group for group in request.groups if group.spreads), RequestGroup(""))
        self._asked: dict[str, list[tuple[int, int]]] = {}  # the demands for each class, as bits, with their amounts
        self._spread = self._demanded(self._spreading)
        self._alone = [
            (1 << number, self._demanded(group)) for number, group in enumerate(request.groups) if not group.spreads
        ]
        self._standings: dict[object, Standing] = {}

    def matter(self, kind: Kind) -> Matter:
        """What of the provider counts; whether in_tree names its tree is not looked at."""
        room, standing = self._room(kind.stocks), self._standing(kind)
        able = 0
        for bit, demanded in self._alone:
            if standing.admitted & bit and room & demanded == demanded:
                able |= bit
        gives = room & self._spread if standing.spreads else 0
        if not (able or gives):
            return NO_MATTER
        meets, member = (standing.meets, standing.ruling.member) if gives else (0, False)
        return Matter(able, gives, meets, member, self._free(kind.stocks), kind.shares)

    def ruling(self, root: Kind) -> Ruling:
        """What the root decides."""
        return self._standing(root).ruling

    def _demanded(self, group: RequestGroup) -> int:
        """Bits for the group's demands; the spreading group's first one is bit 0."""
        first = sum(map(len, self._asked.values()))
        for number, (name, amount) in enumerate(group.resources, first):
            self._asked.setdefault(name, []).append((1 << number, amount))
        return (1 << len(group.resources)) - 1 << first

    def _room(self, stocks: Iterable[Stock]) -> int:
        """Bits: the demands that the stocks have room for, each by itself."""
        room, asked = 0, self._asked
        for stock in stocks:
            if stock.class_name in asked:
                for bit, amount in asked[stock.class_name]:
                    if has_room(stock, amount):
                        room |= bit
        return room

    def _free(self, stocks: Iterable[Stock]) -> tuple[int, ...]:
        """The largest of the sums asked that each stock can give; what lies between two sums makes no difference."""
        if not self.crowded:
            return ()
        free = {stock.class_name: min(stock.capacity - stock.used, stock.max_unit) for stock in stocks}
        return tuple(
            max((amount for amount in sums if amount <= free.get(name, 0)), default=0)
            for name, sums in self.crowded.items()
        )

    def _standing(self, kind: Kind) -> Standing:
        key = kind.traits, kind.aggregates
        standing = self._standings.get(key)
        if standing is None:
            standing = self._standings[key] = self._stood(kind)
        return standing

    def _stood(self, kind: Kind) -> Standing:
        held, group = set(kind.traits), self._spreading
        allowed = held >= self.request.root_required and held.isdisjoint(self.request.root_forbidden)
        return Standing(
            _bits(not group.spreads and _admits(group, kind) for group in self.request.groups),
            not _refuses(group, kind),
            _bits(not names.isdisjoint(kind.traits) for names in group.required),
            Ruling(allowed, _joins(group, kind), not group.not_member_of.isdisjoint(kind.aggregates)),
        )


def has_room(stock: Stock, amount: int) -> bool:
    """Whether so much can be given at once."""
    return (
        stock.used + amount <= stock.capacity
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step_size == 0
    )


def _admits(group: RequestGroup, kind: Kind) -> bool:
    """As in Placement, a group without resources needs a positive filter to have a provider at all."""
    return (
        bool(group.resources or group.required or group.member_of)
        and not _refuses(group, kind)
        and all(not names.isdisjoint(kind.traits) for names in group.required)
        and _joins(group, kind)
    )


def _refuses(group: RequestGroup, kind: Kind) -> bool:
    return not (group.forbidden.isdisjoint(kind.traits) and group.not_member_of.isdisjoint(kind.aggregates))


def _joins(group: RequestGroup, kind: Kind) -> bool:
    return all(not uuids.isdisjoint(kind.aggregates) for uuids in group.member_of)


def _crowded(request: CandidateRequest) -> Mapping[str, list[int]]:
    """The classes that more than one group asks for, each with the sums that some of the groups can come to."""
    asked: dict[str, list[int]] = defaultdict(list)
    for group in request.groups:
        for name, amount in group.resources:
            asked[name].append(amount)
    return {name: _sums(amounts) for name, amounts in asked.items() if len(amounts) > 1}


def _sums(amounts: Iterable[int]) -> list[int]:
    sums = {0}
    for amount in amounts:
        sums |= {before + amount for before in sums}
    return sorted(sums)


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << number for number, flag in enumerate(flags) if flag)
