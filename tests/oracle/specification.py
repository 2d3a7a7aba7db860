"""The specification as a program: what docs/lab/service.md says of candidates, once more and as plainly as possible.

Brute force over a whole cloud in memory; shares no code with the service that it judges. The main part is `expected`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from cloud import CLASSES, SHARES, TRAITS, Cloud
from queries import Group, Query

Resource = tuple[int, str, int]  # provider, class, amount
Taken = dict[str, tuple[Resource, ...]]


@dataclass(frozen=True)
class Candidate:
    """Resources, and the providers of each group."""

    resources: frozenset[Resource]
    mappings: frozenset[tuple[str, frozenset[int]]]


@dataclass(frozen=True)
class Solution:
    """What one group takes at one anchor; a group without resources only names its provider."""

    group: Group
    providers: tuple[int, ...]
    resources: tuple[Resource, ...]


class BadRequestError(Exception):
    """The answer is 400."""


class NothingError(Exception):
    """The answer is empty."""


TOO_MANY = 200_000


def expected(cloud: Cloud, query: Query) -> frozenset[Candidate] | None:
    """Every candidate; None: the answer is 400. The limit is not applied.

    Raises OverflowError when there are too many combinations to try them all.
    """
    try:
        return frozenset(_candidates(cloud, query))
    except BadRequestError:
        return None
    except NothingError:
        return frozenset()


def _candidates(cloud: Cloud, query: Query) -> Iterator[Candidate]:
    _check(query)
    _check_traits({*query.root_required, *query.root_forbidden})
    roots = {each for each in range(len(cloud.providers)) if _allowed_root(cloud, query, each)}
    if not roots:
        raise NothingError
    solved = [_solutions(cloud, group, roots) for group in query.groups_in_order]
    if sum(prod(len(each.get(anchor, ())) for each in solved) for anchor in roots) > TOO_MANY:
        raise OverflowError
    for anchor in roots:
        for combination in product(*(each.get(anchor, []) for each in solved)):
            if _stands(cloud, query, combination):
                yield _joined(combination)


def _check(query: Query) -> None:
    """What all groups together tell: 1.3, steps 2 and 4 to 8."""
    named = frozenset[str]().union(*query.same_subtrees)
    suffixes = {group.suffix for group in query.groups}
    idle = {group.suffix for group in query.groups if not group.resources}
    wrong = (
        bool(query.root_required & query.root_forbidden)
        or idle == suffixes
        or not idle <= named
        or not named <= suffixes
        or any(traits <= group.forbidden for group in query.groups for traits in group.required)
        or (query.policy is None and len(suffixes - {""}) > 1)
    )
    if wrong:
        raise BadRequestError


def _check_traits(names: Iterable[str]) -> None:
    if not set(names) <= {*TRAITS, SHARES}:
        raise BadRequestError


def _allowed_root(cloud: Cloud, query: Query, place: int) -> bool:
    provider = cloud.providers[place]
    return (
        provider.parent is None
        and query.root_required <= provider.traits
        and not query.root_forbidden & provider.traits
    )


def _solutions(cloud: Cloud, group: Group, roots: set[int]) -> Mapping[int, list[Solution]]:
    """By anchor; 1.3, step 10, in its order."""
    if not {name for name, _ in group.resources} <= set(CLASSES):
        raise BadRequestError
    if group.member_of and not any(_in_aggregates(cloud, group, each) for each in range(len(cloud.providers))):
        raise NothingError
    _check_traits(frozenset().union(*group.required, group.forbidden))
    if group.in_tree is not None and group.in_tree >= len(cloud.providers):
        raise NothingError
    for name, amount in group.resources:
        if not any(_has_room(cloud, place, name, amount) for place in range(len(cloud.providers))):
            raise NothingError
    found: dict[int, list[Solution]] = {}
    for anchor, solution in _alone(cloud, group) if group.suffix else _spread(cloud, group):
        if anchor in roots:
            found.setdefault(anchor, []).append(solution)
    if not found:
        raise NothingError
    return found


def _has_room(cloud: Cloud, place: int, name: str, amount: int) -> bool:
    inventory = cloud.providers[place].inventories.get(name)
    return inventory is not None and inventory.has_room(amount)


def _in_aggregates(cloud: Cloud, group: Group, place: int) -> bool:
    return all(numbers & cloud.providers[place].aggregates for numbers in group.member_of)


def _cast_out(cloud: Cloud, group: Group, place: int) -> bool:
    return bool(group.not_member_of & cloud.providers[place].aggregates)


def _anchors(cloud: Cloud, place: int) -> set[int]:
    """The roots that the provider can serve: 1.4."""
    own = cloud.providers[place]
    found = {cloud.root(place)}
    if SHARES in own.traits:
        found |= {cloud.root(other) for other, each in enumerate(cloud.providers) if each.aggregates & own.aggregates}
    return found


def _alone(cloud: Cloud, group: Group) -> Iterator[tuple[int, Solution]]:
    """1.5: everything from one provider, which meets every filter by itself."""
    if not group.resources and not group.required and not group.member_of:
        return
    for place, provider in enumerate(cloud.providers):
        in_tree = group.in_tree is None or not group.resources or cloud.root(place) == cloud.root(group.in_tree)
        if (
            in_tree
            and all(_has_room(cloud, place, name, amount) for name, amount in group.resources)
            and all(traits & provider.traits for traits in group.required)
            and not group.forbidden & provider.traits
            and _in_aggregates(cloud, group, place)
            and not _cast_out(cloud, group, place)
        ):
            resources = tuple((place, name, amount) for name, amount in group.resources)
            for anchor in _anchors(cloud, place):
                yield anchor, Solution(group, (place,), resources)


def _spread(cloud: Cloud, group: Group) -> Iterator[tuple[int, Solution]]:
    """1.6: a provider for each class, together holding every required trait."""
    choices = [list(_choices(cloud, group, *each)) for each in group.resources]
    for combination in product(*choices):
        anchors, resources = {anchor for anchor, _ in combination}, tuple(each for _, each in combination)
        providers = tuple(place for place, _, _ in resources)
        traits = frozenset[str]().union(*(cloud.providers[place].traits for place in providers))
        if len(anchors) == 1 and all(wanted & traits for wanted in group.required) and not group.forbidden & traits:
            yield anchors.pop(), Solution(group, providers, resources)


def _choices(cloud: Cloud, group: Group, name: str, amount: int) -> Iterator[tuple[int, Resource]]:
    """The anchors and providers that a class may come from."""
    for place in range(len(cloud.providers)):
        if not _has_room(cloud, place, name, amount):
            continue
        anchors = {cloud.root(place)}
        if group.in_tree is None and _in_aggregates(cloud, group, place):
            anchors = _anchors(cloud, place)
        for anchor in anchors:
            meets = _in_aggregates(cloud, group, place) or _in_aggregates(cloud, group, anchor)
            cast_out = _cast_out(cloud, group, place) or _cast_out(cloud, group, anchor)
            in_tree = group.in_tree is None or anchor == cloud.root(group.in_tree)
            if meets and in_tree and not cast_out:
                yield anchor, (place, name, amount)


def _stands(cloud: Cloud, query: Query, combination: tuple[Solution, ...]) -> bool:
    """1.7: what all groups must keep to together."""
    alone = [solution.providers[0] for solution in combination if solution.group.suffix]
    if query.policy == "isolate" and len(set(alone)) < len(alone):
        return False
    for suffixes in query.same_subtrees:
        places = {place for each in combination if each.group.suffix in suffixes for place in each.providers}
        if not any(all(top in cloud.lineage(place) for place in places) for top in places):
            return False
    return all(_fits(cloud, *each) for each in _sums(combination))


def _fits(cloud: Cloud, place: int, name: str, amount: int) -> bool:
    inventory = cloud.providers[place].inventories[name]
    return inventory.used + amount <= inventory.capacity and amount <= inventory.max_unit


def _sums(combination: Iterable[Solution]) -> frozenset[Resource]:
    sums: dict[tuple[int, str], int] = {}
    for solution in combination:
        for place, name, amount in solution.resources:
            sums[place, name] = sums.get((place, name), 0) + amount
    return frozenset((place, name, amount) for (place, name), amount in sums.items())


def _joined(combination: tuple[Solution, ...]) -> Candidate:
    mappings = frozenset((each.group.suffix, frozenset(each.providers)) for each in combination)
    return Candidate(_sums(combination), mappings)
