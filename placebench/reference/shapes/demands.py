"""What of a provider matters to one request: the key pieces are `Demands` and `Matter`.

Two providers that matter alike are exchangeable in the search, however else they differ; so are two trees of such
providers. That is why a search per distinct tree is few searches, on data where no two trees are equal too.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from placebench.reference.query import CandidateRequest, RequestGroup
from placebench.reference.shapes.picture import Kind, Stock


class Matter(NamedTuple):
    """Numbers of groups and of demands are bits; what none of them could use is 0, so that more providers are alike."""

    able: int  # groups of which it can give all, or be the provider of one without resources
    gives: int  # demands of the group that spreads: has room, and is not forbidden
    meets: int  # any-sets of that group
    member: bool  # in an aggregate of each member_of of that group
    free: tuple[int, ...]  # the most that it can give of each crowded class
    shares: bool


NO_MATTER: Final = Matter(0, 0, 0, member=False, free=(), shares=False)


class Ruling(NamedTuple):
    """What a tree's root decides for the whole tree."""

    allowed: bool  # by root_required
    member: bool  # in an aggregate of each member_of of the group that spreads, which spans the tree then
    outcast: bool  # in one that it forbids


class Demands:
    """The request, asked provider by provider."""

    def __init__(self, request: CandidateRequest) -> None:
        self.request = request
        self.spreading = next((group for group in request.groups if group.spreads), None)
        self.crowded = _crowded(request)

    def matter(self, kind: Kind) -> Matter:
        """What of the provider counts; trees that in_tree names are not looked at."""
        stocks = {stock.class_name: stock for stock in kind.stocks}
        able = _bits(not group.spreads and _is_able(group, kind, stocks) for group in self.request.groups)
        group = self.spreading
        gives = 0 if group is None else _gives(group, kind, stocks)
        if not (able or gives):
            return NO_MATTER
        free = tuple(_most(stocks.get(name), sums) for name, sums in self.crowded.items())
        if group is None or not gives:
            return Matter(able, 0, 0, member=False, free=free, shares=kind.shares)
        meets = _bits(not names.isdisjoint(kind.traits) for names in group.required)
        return Matter(able, gives, meets, _joins(group, kind), free, kind.shares)

    def ruling(self, root: Kind) -> Ruling:
        """What the root decides."""
        held, group = set(root.traits), self.spreading
        allowed = held >= self.request.root_required and held.isdisjoint(self.request.root_forbidden)
        if group is None:
            return Ruling(allowed, member=False, outcast=False)
        return Ruling(allowed, _joins(group, root), not group.not_member_of.isdisjoint(root.aggregates))


def _is_able(group: RequestGroup, kind: Kind, stocks: Mapping[str, Stock]) -> bool:
    """As in Placement, a group without resources needs a positive filter to have a provider at all."""
    return (
        bool(group.resources or group.required or group.member_of)
        and all(has_room(stocks.get(name), amount) for name, amount in group.resources)
        and not group.forbidden.intersection(kind.traits)
        and all(not names.isdisjoint(kind.traits) for names in group.required)
        and group.not_member_of.isdisjoint(kind.aggregates)
        and _joins(group, kind)
    )


def has_room(stock: Stock | None, amount: int) -> bool:
    """Whether so much can be given at once."""
    return (
        stock is not None
        and stock.used + amount <= stock.capacity
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step_size == 0
    )


def _gives(group: RequestGroup, kind: Kind, stocks: Mapping[str, Stock]) -> int:
    if group.forbidden.intersection(kind.traits) or not group.not_member_of.isdisjoint(kind.aggregates):
        return 0
    return _bits(has_room(stocks.get(name), amount) for name, amount in group.resources)


def _joins(group: RequestGroup, kind: Kind) -> bool:
    return all(not uuids.isdisjoint(kind.aggregates) for uuids in group.member_of)


def _most(stock: Stock | None, sums: Iterable[int]) -> int:
    """The largest of the sums that the stock can give; what lies between two sums makes no difference."""
    free = 0 if stock is None else min(stock.capacity - stock.used, stock.max_unit)
    return max((amount for amount in sums if amount <= free), default=0)


def _crowded(request: CandidateRequest) -> dict[str, list[int]]:
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
