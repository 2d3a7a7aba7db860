"""The solutions of one group of a request, by anchor: the key piece is `solve`.

An anchor is the root of the tree that a solution belongs to. Solutions that differ in nothing but the anchor stay
apart until all groups are merged; Placement takes them for equal before that, and loses candidates.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from placebench.reference.candidates.filters import Filters, read_filters
from placebench.reference.candidates.search import NothingFitsError, Search
from placebench.reference.lookups.rooms import Room, providers_with_room
from placebench.reference.lookups.trees import roots_of
from placebench.reference.problems import BadRequest
from placebench.reference.query import RequestGroup
from placebench.reference.steps.model import Candidate

Solutions = dict[int, list[Candidate]]


@dataclass(frozen=True, slots=True)
class Demand:
    """An amount of a class, and the providers that have room for it."""

    class_id: int
    amount: int
    room: Room


@dataclass(frozen=True, slots=True)
class Solved:
    """A group's solutions by anchor, and what was read for them."""

    solutions: Solutions
    demands: Sequence[Demand]
    root_of: Mapping[int, int]

    def root_ids(self) -> list[int]:
        """The roots of the trees of every provider in a solution."""
        return list({self.root_of[provider_id]: None for provider_id in self._provider_ids()})

    def _provider_ids(self) -> Iterator[int]:
        for at_anchor in self.solutions.values():
            for solution in at_anchor:
                for providers in solution.mappings.values():
                    yield from providers


def solve(search: Search, group: RequestGroup) -> Solved:
    """The group, solved; a round trip a class, and up to 4.

    Raises BadRequest for unknown classes and traits, NothingFitsError when there is no solution.
    """
    class_ids = _class_ids(search, group)
    filters = read_filters(search, group)
    demands = tuple(_demand(search, class_ids[name], amount) for name, amount in group.resources)
    placements = _spread(search, filters, demands) if group.spreads else _alone(search, filters, demands)
    solutions = _solutions(search, group, demands, placements)
    if not solutions:
        raise NothingFitsError
    return Solved(solutions, demands, search.root_of)


def _class_ids(search: Search, group: RequestGroup) -> dict[str, int]:
    known = search.catalog.class_ids
    for name, _ in group.resources:
        if name not in known:
            raise BadRequest(f"no such resource class: {name}")
    return {name: known[name] for name, _ in group.resources}


def _demand(search: Search, class_id: int, amount: int) -> Demand:
    room = providers_with_room(search.reader, class_id, amount)
    if not room:
        raise NothingFitsError
    search.root_of.update((provider_id, row[1]) for provider_id, row in room.items())
    return Demand(class_id, amount, room)


Placement = tuple[int, tuple[int, ...]]  # an anchor, and the provider of each class, or the one provider of all


def _alone(search: Search, filters: Filters, demands: Sequence[Demand]) -> Iterator[Placement]:
    """One provider for everything, at each of its anchors."""
    able = _able(search, filters, demands) if demands else _idle(search, filters)
    for provider_id in able:
        if filters.admit(provider_id):
            for anchor_id in search.anchors(provider_id):
                yield anchor_id, (provider_id,)


def _able(search: Search, filters: Filters, demands: Sequence[Demand]) -> Iterator[int]:
    """Providers of the tree asked for that have room for every class."""
    first, *others = (demand.room for demand in demands)
    having = [search.ways.collection(room) for room in others]
    for provider_id in first:
        if all(provider_id in room for room in having) and filters.in_tree(search.root_of[provider_id]):
            yield provider_id


def _idle(search: Search, filters: Filters) -> Collection[int]:
    """Providers that a group without resources may name; 1 round trip.

    As in Placement, in_tree does not count here, and without a positive filter there is nobody.
    """
    wanted = [*filters.required, *([] if filters.members is None else [filters.members])]
    found = roots_of(search.reader, wanted[0]) if wanted else {}
    search.root_of.update(found)
    return found


def _spread(search: Search, filters: Filters, demands: Sequence[Demand]) -> Iterator[Placement]:
    """A provider for each class, all serving one anchor and together holding every required trait."""
    first, *others = (_by_anchor(search, filters, demand.room) for demand in demands)
    serving = [search.ways.collection(choices) for choices in others]
    for anchor_id in first:
        if all(anchor_id in anchors for anchors in serving):
            for providers in product(first[anchor_id], *(choices[anchor_id] for choices in others)):
                if filters.hold_required(providers):
                    yield anchor_id, providers


def _by_anchor(search: Search, filters: Filters, room: Room) -> dict[int, list[int]]:
    """The providers that may give to each tree."""
    choices: dict[int, list[int]] = defaultdict(list)
    for provider_id in room:
        for anchor_id in _anchors(search, filters, provider_id):
            if filters.admit_at(anchor_id, provider_id):
                choices[anchor_id].append(provider_id)
    return choices


def _anchors(search: Search, filters: Filters, provider_id: int) -> Collection[int]:
    """The provider's own tree; other trees too if it shares, is itself a member, and no tree is named."""
    own = search.root_of[provider_id]
    if filters.tree_root_id is not None:
        return [own] if filters.in_tree(own) and search.is_allowed(own) else []
    if provider_id in search.sharing and (filters.members is None or provider_id in filters.members):
        return search.anchors(provider_id)
    return [own] if search.is_allowed(own) else []


def _solutions(
    search: Search, group: RequestGroup, demands: Sequence[Demand], placements: Iterator[Placement]
) -> Solutions:
    """An object a solution, with an object a resource."""
    candidate, resource = search.ways.model.candidate, search.ways.copying(search.ways.model.resource)
    amounts = [(demand.class_id, demand.amount) for demand in demands]
    solutions: Solutions = defaultdict(list)
    for anchor_id, providers in placements:
        if group.spreads:
            resources = [resource(key, *asked) for key, asked in zip(providers, amounts, strict=True)]
            providers = tuple(dict.fromkeys(providers))
        else:
            resources = [resource(providers[0], *asked) for asked in amounts]
        solutions[anchor_id].append(candidate(anchor_id, resources, {group.suffix: providers}))
    return solutions
