"""What of a provider is relevant to one request: the main classes are `Assessor` and `Relevance`.

Two providers of equal relevance are exchangeable in the search, however else they differ; so are two trees of such
providers. That is why a search per distinct tree is few searches, even where no two trees are equal.

Of an amount it matters only between which of the request's amounts it is: its level. Trees of one layout are
distinguished by their levels, a column of amounts at a time, and only one of those on equal levels is looked at.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from math import gcd
from typing import Final, NamedTuple

from placebench.lab.reference.candidates.dedup.tree_index import ProviderType, TreeClass
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.domain.validation import MAX_INTEGER

MAX_SUMS: Final = 256
"""The number of possible sums of one class that are told apart; each distinct provider is compared with them."""


class Relevance(NamedTuple):
    """What the request can use of a provider; what no group could use is 0, so that more providers are alike.

    Groups, any-sets of traits, and demands (a class and its amount in a group) are numbered, and each number is a bit.
    """

    solves: int  # groups of which it can give all, or be the provider of one without resources
    gives: int  # demands of the group that spreads: has capacity, and is not forbidden
    meets: int  # any-sets of that group
    member: bool  # in an aggregate of each member_of of that group
    free: tuple[int, ...]  # the most that it can give of each contended class
    shares: bool


_IRRELEVANT: Final = Relevance(0, 0, 0, member=False, free=(), shares=False)


class Provider(NamedTuple):
    """A provider without its uuid and place."""

    type: ProviderType
    most: tuple[int, ...]  # that each inventory can give at once: by what is unused, and by max_unit
    aggregates: frozenset[str]


def providers_of(tree_class: TreeClass) -> list[Provider]:
    """Return the providers of the trees of this class, the root first."""
    most = iter(tree_class.most)
    return [
        Provider(each, tuple(islice(most, len(each.inventories))), aggregates)
        for each, aggregates in zip(tree_class.layout.providers, tree_class.aggregates, strict=True)
    ]


class Equivalence(NamedTuple):
    """Which amounts and which providers are alike: of these only one is searched."""

    level: Callable[[Sequence[int], int], int]  # of an amount, from the request's amounts in their order
    key: Callable[[Provider, Relevance], Hashable]


SAME_AMOUNTS: Final = Equivalence(lambda _amounts, most: most, lambda provider, _relevance: provider)
SAME_RELEVANCE: Final = Equivalence(bisect_right, lambda _provider, relevance: relevance)


class RootRuling(NamedTuple):
    """What a tree's root decides for the whole tree."""

    allowed: bool  # by root_required
    member: bool  # in an aggregate of each member_of of the group that spreads, which spans the tree then
    excluded: bool  # in one that it forbids


class _Eligibility(NamedTuple):
    """What a provider's traits and aggregates decide."""

    admitted: int  # groups whose filters it meets by itself
    spreads: bool  # not refused by the group that spreads
    meets: int
    ruling: RootRuling  # as a root


class Assessor:
    """One request, and what of each provider is relevant to it."""

    def __init__(self, request: CandidateRequest, equivalence: Equivalence = SAME_RELEVANCE) -> None:
        """equivalence: says which providers are searched once for all of them."""
        self.request = request
        self.equivalence = equivalence
        amounts_of: dict[str, list[int]] = defaultdict(list)
        for group in request.groups:
            for name, amount in group.resources:
                amounts_of[name].append(amount)
        self.contended = {name: possible_sums(amounts) for name, amounts in amounts_of.items() if len(amounts) > 1}
        """The classes that more than one group requests, each with the sums that some of the groups can come to."""
        self._spreading = next((group for group in request.groups if group.spreads), RequestGroup(""))
        self._demands: dict[str, list[tuple[int, int]]] = {}  # the demands of each class, as bits, with their amounts
        self._spread = self._demanded(self._spreading)
        self._alone = [
            (1 << number, self._demanded(group)) for number, group in enumerate(request.groups) if not group.spreads
        ]
        self.amounts: Mapping[str, Sequence[int]] = {
            name: self.contended.get(name) or sorted({amount for _, amount in demands})
            for name, demands in self._demands.items()
        }
        """For each class, the amounts that one provider may have to give, in ascending order."""
        self.by_aggregates = any(group.member_of or group.not_member_of for group in request.groups)
        self._eligibilities: dict[object, _Eligibility] = {}

    def relevance(self, provider: Provider) -> Relevance:
        """Return what counts of the provider; whether in_tree names its tree is not looked at."""
        satisfiable, eligibility = self._satisfiable(provider), self._eligibility(provider)
        solves = 0
        for bit, demanded in self._alone:
            if eligibility.admitted & bit and satisfiable & demanded == demanded:
                solves |= bit
        gives = satisfiable & self._spread if eligibility.spreads else 0
        if not (solves or gives):
            return _IRRELEVANT
        meets, member = (eligibility.meets, eligibility.ruling.member) if gives else (0, False)
        return Relevance(solves, gives, meets, member, self._free(provider), provider.type.shares)

    def ruling(self, root: Provider) -> RootRuling:
        """Return what the provider decides as a root."""
        return self._eligibility(root).ruling

    def _demanded(self, group: RequestGroup) -> int:
        """The group's demands as bits; the spreading group's first one is bit 0."""
        first = sum(map(len, self._demands.values()))
        for number, (name, amount) in enumerate(group.resources, first):
            self._demands.setdefault(name, []).append((1 << number, amount))
        return (1 << len(group.resources)) - 1 << first

    def _satisfiable(self, provider: Provider) -> int:
        """The demands, as bits, that the inventories have capacity for, each by itself."""
        satisfiable, demands = 0, self._demands
        for inventory, most in zip(provider.type.inventories, provider.most, strict=True):
            for bit, amount in demands.get(inventory.class_name, ()):
                if inventory.min_unit <= amount <= most and amount % inventory.step_size == 0:
                    satisfiable |= bit
        return satisfiable

    def _free(self, provider: Provider) -> tuple[int, ...]:
        """The largest possible sum that each inventory can give; what is between two sums makes no difference."""
        if not self.contended:
            return ()
        free = {each.class_name: most for each, most in zip(provider.type.inventories, provider.most, strict=True)}
        return tuple(sums[bisect_right(sums, max(0, free.get(name, 0))) - 1] for name, sums in self.contended.items())

    def _eligibility(self, provider: Provider) -> _Eligibility:
        key = provider.type, self.by_aggregates and provider.aggregates
        eligibility = self._eligibilities.get(key)
        if eligibility is None:
            eligibility = self._eligibilities[key] = self._assess(provider)
        return eligibility

    def _assess(self, provider: Provider) -> _Eligibility:
        traits, group = set(provider.type.traits), self._spreading
        allowed = traits >= self.request.root_required and traits.isdisjoint(self.request.root_forbidden)
        excluded = not group.not_member_of.isdisjoint(provider.aggregates)
        return _Eligibility(
            _bits(not group.spreads and _admits(group, provider) for group in self.request.groups),
            not _refuses(group, provider),
            _bits(not names.isdisjoint(traits) for names in group.required),
            RootRuling(allowed, _is_member(group, provider), excluded),
        )


def _admits(group: RequestGroup, provider: Provider) -> bool:
    """Whether the provider meets all filters; a group without resources needs a positive one, as in Placement."""
    return (
        bool(group.resources or group.required or group.member_of)
        and not _refuses(group, provider)
        and all(not names.isdisjoint(provider.type.traits) for names in group.required)
        and _is_member(group, provider)
    )


def _refuses(group: RequestGroup, provider: Provider) -> bool:
    traits, aggregates = provider.type.traits, provider.aggregates
    return not (group.forbidden.isdisjoint(traits) and group.not_member_of.isdisjoint(aggregates))


def _is_member(group: RequestGroup, provider: Provider) -> bool:
    return all(not uuids.isdisjoint(provider.aggregates) for uuids in group.member_of)


def possible_sums(amounts: Sequence[int]) -> Sequence[int]:
    """Return every sum of some of the amounts that an inventory can give, in ascending order, beginning with 0.

    Different amounts can have 2ⁿ sums. If there are more than `MAX_SUMS`, the result is a range that has all of them
    and others: providers that are equal for a request may then be searched twice, with the same candidates.
    """
    sums = {0}
    for amount in amounts:
        sums |= {total for before in sums if (total := before + amount) <= MAX_INTEGER}
        if len(sums) > MAX_SUMS:
            return range(0, min(sum(amounts), MAX_INTEGER) + 1, gcd(*amounts))
    return sorted(sums)


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << number for number, flag in enumerate(flags) if flag)
