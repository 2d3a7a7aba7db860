"""Search for the solutions of one request group by anchor, with the filters by trait, aggregate and tree: `solve`."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain, filterfalse, islice, product
from operator import or_
from typing import Any, TypeVar

from placebench.lab.reference.candidates.combinations import FEW, StepLimit
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.objects.search import NothingFitsError, Search
from placebench.lab.reference.candidates.results import search_bound
from placebench.lab.reference.domain.candidates_query import RequestGroup
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.store.candidate_queries import (
    ProvidersWithCapacity,
    read_aggregate_members,
    read_providers_with_capacity,
    read_root,
    read_roots,
    read_trait_holders,
)

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class _GroupFilters:
    """The filters of a group, as sets of provider ids."""

    required: tuple[Collection[int], ...]  # for each set of required traits, the providers with one of its traits
    forbidden: Collection[int]  # the providers with a forbidden trait
    members: Collection[int] | None  # the providers in an aggregate of each member_of; None: no member_of
    excluded: Collection[int]  # the providers in a forbidden aggregate
    tree_root_id: int | None  # the root of the tree that in_tree names; None: no in_tree

    def admitted(self, provider_ids: Iterable[int]) -> Iterable[int]:
        """Return the providers that by themselves meet all filters except in_tree."""
        for wanted in (*self.required, *(() if self.members is None else (self.members,))):
            provider_ids = filter(wanted.__contains__, provider_ids)
        for unwanted in filter(None, (self.forbidden, self.excluded)):
            provider_ids = filterfalse(unwanted.__contains__, provider_ids)
        return provider_ids

    def admitted_in_own_trees(self, roots: Mapping[int, int]) -> Collection[tuple[int, int]]:
        """Return (provider id, root id) of those that `admit_at` admits at their own roots."""
        if self.members is None and not (self.forbidden or self.excluded):
            return roots.items()
        return [pair for pair in roots.items() if self.admit_at(pair[1], pair[0])]

    def admit_at(self, anchor_id: int, provider_id: int) -> bool:
        """Return whether forbidden traits and the filters by aggregate allow the provider at the anchor.

        An aggregate of the anchor, which is the root of a tree, applies to the whole tree.
        """
        return (
            provider_id not in self.forbidden
            and provider_id not in self.excluded
            and anchor_id not in self.excluded
            and (self.members is None or provider_id in self.members or anchor_id in self.members)
        )

    def hold_required(self, provider_ids: Collection[int]) -> bool:
        """Return whether the providers together have a trait of each required set."""
        return all(any(map(holders.__contains__, provider_ids)) for holders in self.required)


def _read_filters(search: Search, group: RequestGroup) -> _GroupFilters:
    """Read the providers of the group's filters; up to 3 round trips.

    In Placement's order, raises NothingFitsError if member_of has no members, BadRequest for unknown traits, and
    NothingFitsError if in_tree names an unknown provider. An unknown aggregate is not an error: it has no members.
    """
    members, excluded = _aggregates(search, group)
    # The holders of all required and forbidden traits: 1 round trip or none.
    required_ids = [search.trait_ids(alternatives) for alternatives in group.required]
    forbidden_ids = search.trait_ids(group.forbidden)
    found = read_trait_holders(search.reader, {*forbidden_ids, *(key for keys in required_ids for key in keys)})
    required = tuple(_any_of(search.collection, found, keys) for keys in required_ids)
    forbidden = _any_of(search.collection, found, forbidden_ids)
    tree_root_id = None
    if group.in_tree is not None:
        tree_root_id = read_root(search.reader, group.in_tree)
        if tree_root_id is None:
            raise NothingFitsError
    return _GroupFilters(required, forbidden, members, excluded, tree_root_id)


def _aggregates(search: Search, group: RequestGroup) -> tuple[Collection[int] | None, Collection[int]]:
    """Return the members of all member_of (None without any) and those of forbidden aggregates; up to 1 round trip."""
    uuids = group.not_member_of.union(*group.member_of)
    found = read_aggregate_members(search.reader, uuids)
    excluded = _any_of(search.collection, found, group.not_member_of)
    if not group.member_of:
        return None, excluded
    first, *others = (_any_of(search.collection, found, uuids) for uuids in group.member_of)
    members = search.collection(key for key in first if all(key in other for other in others))
    if not members:
        raise NothingFitsError
    return members, excluded


def _any_of(
    collection: Callable[[Iterable[int]], Collection[int]], found: Mapping[_Key, list[int]], keys: Iterable[_Key]
) -> Collection[int]:
    return collection(member for key in keys for member in found[key])


Solutions = dict[int, list[Any]]  # by anchor, in the variant's form
Placement = tuple[int, tuple[int, ...]]  # an anchor, and the provider of each class or the one provider of all classes


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """An amount of a class that a group requests, and the providers that have capacity for the amount."""

    class_id: int
    amount: int
    providers: ProvidersWithCapacity


@dataclass(frozen=True, slots=True)
class Solved:
    """A group's solutions by anchor, with its demands and the root ids by provider id."""

    solutions: Solutions
    demands: Sequence[ClassDemand]  # none if they are those of an equal group before
    root_of: Mapping[int, int]
    providers: Callable[[Any], tuple[int, ...]]  # returns the providers of a solution

    def root_ids(self) -> list[int]:
        """Return the roots of the trees of all providers in solutions."""
        solutions = chain.from_iterable(self.solutions.values())
        provider_ids = chain.from_iterable(map(self.providers, solutions))
        return list(dict.fromkeys(map(self.root_of.__getitem__, provider_ids)))


def solve_each(search: Search, group: RequestGroup) -> Solved:
    """Return the solutions of the group; 1 round trip per class, and up to 4 more.

    Raises BadRequest for unknown classes and traits, NothingFitsError if the group has no solution.
    """
    class_ids = search.catalog.class_ids
    for name, _ in group.resources:
        if name not in class_ids:
            raise BadRequest(f"no such resource class: {name}")
    filters = _read_filters(search, group)
    demands = []
    for name, amount in group.resources:
        providers = read_providers_with_capacity(
            search.reader,
            class_ids[name],
            amount,
            with_amounts=name in search.contended,
            root_id=filters.tree_root_id,
        )
        if not providers.roots:
            raise NothingFitsError
        search.root_of.update(providers.roots)
        demands.append(ClassDemand(class_ids[name], amount, providers))
    if group.spreads:
        # If no other group requests one of the classes, each placement can be combined with the other groups'
        # solutions, so that no anchor needs more of them than there may be candidates.
        names = {name for name, _ in group.resources}
        others = {name for other in search.request.groups if other is not group for name, _ in other.resources}
        most = search_bound(search.request, search.settings) if names.isdisjoint(others) else None
        placements = _solve_spread(search, filters, demands, most)
    else:
        placements = _solve_alone(search, filters, demands)
    solutions = search.solution_form.solutions(search, group, demands, placements)
    if not solutions:
        raise NothingFitsError
    return Solved(solutions, demands, search.root_of, search.solution_form.providers)


def solve_distinct(search: Search, group: RequestGroup) -> Solved:
    """Return the solutions of the first group that is equal but for its suffix; those of a new one as `solve_each`."""
    key = group if group.spreads else replace(group, suffix="_")
    found: Solved | None = search.solved.get(key)
    if found is not None:
        return found
    made = solve_each(search, group)
    search.solved[key] = replace(made, demands=())
    return made


def _solve_alone(search: Search, filters: _GroupFilters, demands: Sequence[ClassDemand]) -> Iterator[Placement]:
    """Yield each provider that can give all classes, at each of its anchors.

    A group without resources needs 1 round trip. As in Placement, it ignores in_tree, and has no solution without a
    required trait or member_of.
    """
    able: Iterable[int]
    if demands:
        able, *others = (demand.providers.roots for demand in demands)
        for providers in others:
            able = filter(search.collection(providers).__contains__, able)
    else:
        wanted = [*filters.required, *([] if filters.members is None else [filters.members])]
        able = found = read_roots(search.reader, wanted[0]) if wanted else {}
        search.root_of.update(found)
    for provider_id in filters.admitted(able):
        for anchor_id in search.anchors(provider_id):
            yield anchor_id, (provider_id,)


def _solve_spread(
    search: Search, filters: _GroupFilters, demands: Sequence[ClassDemand], most: int | None
) -> Iterator[Placement]:
    """Yield providers, one per class, that serve the same anchor and together have all required traits.

    most: the maximum number of placements per anchor; None: all.
    """
    if search.serves_own_trees:
        own = [filters.admitted_in_own_trees(demand.providers.roots) for demand in demands]
        only = [{root_id: provider_id for provider_id, root_id in pairs} for pairs in own]
        if all(len(each) == len(pairs) for each, pairs in zip(only, own, strict=True)):
            # One provider per class and tree, as in flat hosts.
            anchors = _serving_all(search, only)
            for placement in zip(
                anchors, zip(*[map(each.__getitem__, anchors) for each in only], strict=True), strict=True
            ):
                if not filters.required or filters.hold_required(placement[1]):
                    yield placement
            return
    by_class = [_by_anchor(search, filters, demand.providers.roots) for demand in demands]
    limit = StepLimit()
    for anchor_id in _serving_all(search, by_class):
        choices = [each[anchor_id] for each in by_class]
        for number, providers in enumerate(islice(choices_with_traits(choices, filters.required, limit.spend), most)):
            if number >= FEW:
                limit.count_found(len(providers))
            yield anchor_id, providers


def choices_with_traits(
    choices: Sequence[Sequence[int]], required: Sequence[Collection[int]], spend: Callable[[int], None]
) -> Iterator[tuple[int, ...]]:
    """Yield one provider of each of the choices, in the order of `product`, if together they have all required traits.

    A branch that cannot have them is not entered, and of several that have the same traits only the first fails.

    Args:
        choices: The providers of each class.
        required: For each set of required traits, the providers with one of its traits.
        spend: A function that counts steps in vain, and raises BadRequest if there are too many.
    """
    if not required:
        yield from product(*choices)
        return
    wanted = (1 << len(required)) - 1
    meets: Memo[int, int] = Memo(
        lambda key: sum(1 << number for number, holders in enumerate(required) if key in holders)
    )
    by_class = (reduce(or_, map(meets.__getitem__, some), 0) for some in reversed(choices))
    to_come = [*accumulate(by_class, or_, initial=0)][::-1]
    placed, met, untried, is_dead_end = list[int](), [0], [iter(choices[0])], [True]
    dead_ends = set[tuple[int, int]]()
    while untried:
        count = len(untried)
        for provider in untried[-1]:
            traits = met[-1] | meets[provider]
            if traits | to_come[count] != wanted or (count, traits) in dead_ends:
                continue
            if count == len(choices):
                is_dead_end[-1] = False
                yield (*placed, provider)
                continue
            placed.append(provider)
            met.append(traits)
            untried.append(iter(choices[count]))
            is_dead_end.append(True)
            break
        else:
            untried.pop()
            state = count - 1, met.pop()
            if is_dead_end.pop():
                dead_ends.add(state)
                spend(len(choices[count - 1]))
            elif is_dead_end:
                is_dead_end[-1] = False
            if placed:
                placed.pop()


def _serving_all(search: Search, by_class: Sequence[Mapping[int, Any]]) -> list[int]:
    """Return the anchors that have a provider of each class."""
    first, *others = by_class
    anchors = list(first)
    for serving in others:
        anchors = list(filter(search.collection(serving).__contains__, anchors))
    return anchors


def _by_anchor(search: Search, filters: _GroupFilters, roots: Mapping[int, int]) -> dict[int, list[int]]:
    """Return the providers that the filters allow at each anchor, by anchor."""
    choices: dict[int, list[int]] = defaultdict(list)
    if search.serves_own_trees:
        for provider_id, root_id in filters.admitted_in_own_trees(roots):
            choices[root_id].append(provider_id)
        return choices
    for provider_id in roots:
        for anchor_id in _anchors(search, filters, provider_id):
            if filters.admit_at(anchor_id, provider_id):
                choices[anchor_id].append(provider_id)
    return choices


def _anchors(search: Search, filters: _GroupFilters, provider_id: int) -> Collection[int]:
    """Return the root of the provider's tree, and other anchors if it shares, is a member, and there is no in_tree."""
    own = search.root_of[provider_id]
    shares = provider_id in search.sharing and (filters.members is None or provider_id in filters.members)
    if shares and filters.tree_root_id is None:
        return search.anchors(provider_id)
    return [own] if search.is_allowed(own) else []


def solutions_as_objects(
    search: Search, group: RequestGroup, demands: Sequence[ClassDemand], placements: Iterator[Placement]
) -> Solutions:
    """Return the solutions by anchor: one object per solution, with one object per resource."""
    candidate, resource = search.model.candidate, search.resource
    amounts = [(demand.class_id, demand.amount) for demand in demands]
    solutions: Solutions = defaultdict(list)
    for anchor_id, providers in placements:
        if group.spreads:
            resources = [resource(key, *amount) for key, amount in zip(providers, amounts, strict=True)]
            providers = tuple(dict.fromkeys(providers))
        else:
            resources = [resource(providers[0], *amount) for amount in amounts]
        solutions[anchor_id].append(candidate(anchor_id, resources, {group.suffix: providers}))
    return solutions


def solutions_as_tuples(
    _search: Search, _group: RequestGroup, _demands: Sequence[ClassDemand], placements: Iterator[Placement]
) -> Solutions:
    """Return the placements by anchor: what each takes of its providers follows from the group."""
    solutions: Solutions = defaultdict(list)
    for placement in placements:
        solutions[placement[0]].append(placement)
    return solutions
