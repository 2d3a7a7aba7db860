"""Reduces providers to the facts that are relevant to one request: the main classes are `Assessor` and `Relevance`.

Two providers with equal relevance are interchangeable in the search, however else they differ; so are two trees of such
providers. Therefore few searches suffice, even if no two trees are equal.

The level of an amount is its position between the request's amounts; only the level matters. Trees of one layout are
compared by levels, one column of amounts at a time, and only one of the trees with equal levels is searched.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from math import gcd
from typing import Final, NamedTuple

from placebench.lab.reference.candidates.combinations import StepLimit
from placebench.lab.reference.candidates.dedup.tree_index import ProviderType, TreeClass
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.domain.validation import MAX_INTEGER

MAX_SUMS: Final = 256
"""The maximum number of possible sums of one class, with which each distinct provider is compared."""


class Relevance(NamedTuple):
    """The facts about a provider that a request can use; all others are 0, so that more providers are equal.

    Groups, required sets of traits, and demands (the amount of a class in a group) are numbered; a number is a bit.
    """

    solves: int  # the groups with a suffix that the provider can solve by itself
    gives: int  # the demands of the spreading group that the provider can and may give
    meets: int  # the required sets of the spreading group of which the provider has a trait
    member: bool  # whether the provider is in an aggregate of each member_of of the spreading group
    free: tuple[int, ...]  # the largest possible sum of each contended class that the provider can give
    shares: bool


_IRRELEVANT: Final = Relevance(0, 0, 0, member=False, free=(), shares=False)


class Provider(NamedTuple):
    """A provider without its uuid and place."""

    type: ProviderType
    most: tuple[int, ...]  # the largest amount that each inventory can give: min(unused capacity, max_unit)
    aggregates: frozenset[str]


def providers_of(tree_class: TreeClass) -> list[Provider]:
    """Return the providers that each tree of the class has, the root first."""
    most = iter(tree_class.most)
    return [
        Provider(each, tuple(islice(most, len(each.inventories))), aggregates)
        for each, aggregates in zip(tree_class.layout.providers, tree_class.aggregates, strict=True)
    ]


class Equivalence(NamedTuple):
    """A rule that says which amounts and which providers are equivalent: only one of those is searched."""

    level: Callable[[Sequence[int], int], int]  # returns the level of an amount among the request's sorted amounts
    key: Callable[[Provider, Relevance], Hashable]  # returns a value that is equal for equivalent providers


SAME_AMOUNTS: Final = Equivalence(lambda _amounts, most: most, lambda provider, _relevance: provider)
SAME_RELEVANCE: Final = Equivalence(bisect_right, lambda _provider, relevance: relevance)


class RootRuling(NamedTuple):
    """The facts about a tree's root that apply to the whole tree."""

    allowed: bool  # whether the root meets root_required
    member: bool  # whether the root, and so the tree, is in an aggregate of each member_of of the spreading group
    excluded: bool  # whether the root is in an aggregate that the spreading group forbids


class _Eligibility(NamedTuple):
    """The facts about a provider that follow from its traits and aggregates."""

    admitted: int  # the groups with a suffix whose filters the provider meets
    spreads: bool  # whether the forbidden traits and aggregates of the spreading group allow the provider
    meets: int  # as in `Relevance`
    ruling: RootRuling  # the ruling if the provider is a root


class Assessor:
    """A request, with methods that return what is relevant to it about a provider."""

    def __init__(self, request: CandidateRequest, equivalence: Equivalence = SAME_RELEVANCE) -> None:
        """equivalence: the rule that says which providers are equivalent, so that only one of them is searched."""
        self.request = request
        self.equivalence = equivalence
        self.step_limit = StepLimit()
        amounts_of: dict[str, list[int]] = defaultdict(list)
        for group in request.groups:
            for name, amount in group.resources:
                amounts_of[name].append(amount)
        self.contended = {name: possible_sums(amounts) for name, amounts in amounts_of.items() if len(amounts) > 1}
        """The possible sums of the groups' amounts, for each class that more than one group requests."""
        self._spreading = next((group for group in request.groups if group.spreads), RequestGroup(""))
        self._demands: dict[str, list[tuple[int, int]]] = {}  # the demands of each class, as (bit, amount)
        self._spread = self._demanded(self._spreading)
        self._alone = [
            (1 << number, self._demanded(group), group)
            for number, group in enumerate(request.groups)
            if not group.spreads
        ]
        self.amounts: Mapping[str, Sequence[int]] = {
            name: self.contended.get(name) or sorted({amount for _, amount in demands})
            for name, demands in self._demands.items()
        }
        """The amounts of each class that one provider may have to give, in ascending order."""
        self.named_aggregates: frozenset[str] = frozenset[str]().union(
            *[uuids for group in request.groups for uuids in (*group.member_of, group.not_member_of)]
        )
        """The aggregates that the request names: no others matter to it, except those of sharing providers."""
        traits = [names for group in request.groups for names in (*group.required, group.forbidden)]
        self._named_traits = request.root_required.union(request.root_forbidden, *traits)
        self._eligibilities: dict[object, _Eligibility] = {}
        self._satisfied: dict[object, int] = {}

    def relevance(self, provider: Provider) -> Relevance:
        """Return the relevance of the provider, without regard to in_tree."""
        key, eligibility = (provider.type.inventories, provider.most), self._eligibility(provider)
        satisfiable = self._satisfied.get(key)
        if satisfiable is None:
            satisfiable = self._satisfied[key] = self._satisfiable(provider)
        solves = 0
        for bit, demanded, _ in self._alone:
            if eligibility.admitted & bit and satisfiable & demanded == demanded:
                solves |= bit
        gives = satisfiable & self._spread if eligibility.spreads else 0
        if not (solves or gives):
            return _IRRELEVANT
        meets, member = (eligibility.meets, eligibility.ruling.member) if gives else (0, False)
        return Relevance(solves, gives, meets, member, self._free(provider), provider.type.shares)

    def ruling(self, root: Provider) -> RootRuling:
        """Return the facts about this root that apply to its whole tree."""
        return self._eligibility(root).ruling

    def _demanded(self, group: RequestGroup) -> int:
        """Number the group's demands and return them as bits; called for the spreading group first, from bit 0."""
        first = sum(map(len, self._demands.values()))
        for number, (name, amount) in enumerate(group.resources, first):
            self._demands.setdefault(name, []).append((1 << number, amount))
        return (1 << len(group.resources)) - 1 << first

    def _satisfiable(self, provider: Provider) -> int:
        """Return the demands, as bits, for each of which by itself the provider's inventories have capacity."""
        satisfiable, demands = 0, self._demands
        for inventory, most in zip(provider.type.inventories, provider.most, strict=True):
            for bit, amount in demands.get(inventory.class_name, ()):
                if inventory.min_unit <= amount <= most and amount % inventory.step_size == 0:
                    satisfiable |= bit
        return satisfiable

    def _free(self, provider: Provider) -> tuple[int, ...]:
        """Return the largest possible sum of each contended class that the provider can give.

        Amounts between two possible sums make no difference.
        """
        if not self.contended:
            return ()
        free = {each.class_name: most for each, most in zip(provider.type.inventories, provider.most, strict=True)}
        return tuple(sums[bisect_right(sums, max(0, free.get(name, 0))) - 1] for name, sums in self.contended.items())

    def _eligibility(self, provider: Provider) -> _Eligibility:
        key: object = self._named_traits and self._named_traits & provider.type.trait_set
        if self.named_aggregates:
            key = key, self.named_aggregates & provider.aggregates
        eligibility = self._eligibilities.get(key)
        if eligibility is None:
            eligibility = self._eligibilities[key] = self._assess(provider)
        return eligibility

    def _assess(self, provider: Provider) -> _Eligibility:
        traits, group = provider.type.trait_set, self._spreading
        allowed = traits >= self.request.root_required and traits.isdisjoint(self.request.root_forbidden)
        excluded = not group.not_member_of.isdisjoint(provider.aggregates)
        return _Eligibility(
            sum([bit for bit, _, each in self._alone if _admits(each, provider)]),
            not (excluded or not group.forbidden.isdisjoint(traits)),
            sum([1 << number for number, names in enumerate(group.required) if not names.isdisjoint(traits)]),
            RootRuling(allowed, _is_member(group, provider), excluded),
        )


def _admits(group: RequestGroup, provider: Provider) -> bool:
    """Return whether the provider meets all filters of the group.

    As in Placement, a group without resources must have a required trait or member_of.
    """
    return (
        bool(group.resources or group.required or group.member_of)
        and group.forbidden.isdisjoint(provider.type.trait_set)
        and group.not_member_of.isdisjoint(provider.aggregates)
        and all(not names.isdisjoint(provider.type.trait_set) for names in group.required)
        and _is_member(group, provider)
    )


def _is_member(group: RequestGroup, provider: Provider) -> bool:
    return not group.member_of or all(not uuids.isdisjoint(provider.aggregates) for uuids in group.member_of)


def possible_sums(amounts: Sequence[int]) -> Sequence[int]:
    """Return every sum of some of the amounts that an inventory can give, in ascending order, beginning with 0.

    The sums of n different amounts can be 2ⁿ. If there are more than `MAX_SUMS`, the result is a range that includes
    them and other numbers: equivalent providers may then be searched twice, with equal results.
    """
    sums = {0}
    for amount in amounts:
        sums |= {total for before in sums if (total := before + amount) <= MAX_INTEGER}
        if len(sums) > MAX_SUMS:
            return range(0, min(sum(amounts), MAX_INTEGER) + 1, gcd(*amounts))
    return sorted(sums)
