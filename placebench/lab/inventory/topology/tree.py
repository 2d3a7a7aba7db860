"""One provider tree: its nodes and inventories, what its consumers take, and how it is filled with consumers.

`TreeType` is a tree as a topology file describes it. `fill_tree` returns the consumers of a full tree, each of which
takes the resources of the topology's request.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

MAX_INTEGER = 2**31 - 1
"""The largest value of Placement's integer columns."""


@dataclass(frozen=True)
class Inventory:
    """The inventory of one resource class, with Placement's own defaults."""

    resource_class: str
    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INTEGER
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> float:
        """The amount that all consumers together may take; not rounded, because Placement compares unrounded."""
        return (self.total - self.reserved) * self.allocation_ratio

    def allows(self, amount: int) -> bool:
        """Return whether one consumer may take *amount* from the unused inventory."""
        within = self.min_unit <= amount <= self.max_unit
        return within and amount % self.step_size == 0 and amount <= self.capacity


@dataclass(frozen=True)
class RandomSubset:
    """A random choice of between `at_least` and `at_most` of the names, made separately for each provider."""

    names: tuple[str, ...]
    at_least: int
    at_most: int

    def choose(self, number: int) -> list[str]:
        """Return the names chosen by the random *number*: first how many, then which, each with equal probability."""
        number, extra = divmod(number, self.at_most - self.at_least + 1)
        left, chosen = list(self.names), []
        for _ in range(self.at_least + extra):  # the number is read as digits of falling base
            number, place = divmod(number, len(left))
            chosen.append(left.pop(place))
        return chosen


@dataclass(frozen=True)
class Node:
    """One provider of a tree; `path` is "cn1/n0" for n0 under cn1, `parent` the position of cn1 in the tree."""

    name: str
    path: str
    parent: int | None = None
    inventories: tuple[Inventory, ...] = ()
    traits: tuple[str, ...] = ()
    some_traits: RandomSubset | None = None
    aggregates: tuple[str, ...] = ()
    some_aggregates: RandomSubset | None = None


class Take(NamedTuple):
    """An amount of one resource class, taken from the provider at position `place` of the tree."""

    place: int
    resource_class: str
    amount: int


Takes = tuple[Take, ...]
"""All amounts that one consumer takes."""


@dataclass(frozen=True)
class ClaimPattern:
    """Consumers that take the same, and how many there are in the first tree of the type, in the second, and so on."""

    takes: Takes
    counts: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class TreeType:
    """One type of tree: its providers (each after its parent), its share of the trees by `weight`, and its claims.

    With types of the weights 9 and 1, nine in ten trees are of the first type. The claims are those of the consumers of
    such trees; all claims have the same number of counts.
    """

    nodes: tuple[Node, ...]
    weight: int = 1
    claims: tuple[ClaimPattern, ...] = ()


_Inventories = Mapping[tuple[int, str], Inventory]


def inventory_map(nodes: Sequence[Node]) -> _Inventories:
    """Return the inventories of the tree, by (position of the provider, resource class)."""
    return {(place, each.resource_class): each for place, node in enumerate(nodes) for each in node.inventories}


def find_overdrawn(inventories: _Inventories, claims: Iterable[ClaimPattern]) -> tuple[int, str] | None:
    """Return the key of the first inventory from which claims take more than its capacity; None if there is none."""
    used: dict[tuple[int, str], Counter[int]] = {}
    for claim in claims:
        for place, resource_class, amount in claim.takes:
            taken = used.setdefault((place, resource_class), Counter())
            for turn, count in enumerate(claim.counts):
                taken[turn] += amount * count
    return next((key for key, taken in used.items() if max(taken.values()) > inventories[key].capacity), None)


_MAX_CONSUMERS = 10_000
_MAX_ATTEMPTS = 10_000
"""Maximum number of providers that are tried for one consumer."""


def fill_tree(nodes: Sequence[Node], request: str) -> list[Takes]:
    """Return the consumers of a full tree, ordered so that any first n of them are spread evenly over the providers.

    request: path and query; each consumer takes the requested resources, until no further consumer fits.
    """
    tree = _FillingTree(nodes, _parse_demand(request))
    consumers: list[Takes] = []
    while len(consumers) < _MAX_CONSUMERS and (takes := tree.claim()):
        consumers.append(takes)
    return consumers


def draw_consumer_count(random_number: int, utilization: float, full: int) -> int:
    """Return the number of consumers of a tree, given a random number below 2**160 and the number in a *full* tree.

    The utilization of a tree is uniformly distributed over the part of 2 * utilization - 1 … 2 * utilization that lies
    within 0 … 1, so that its mean is *utilization*.
    """
    level, rest = (part / 2**80 for part in divmod(random_number, 2**80))
    drawn = utilization + (2 * level - 1) * min(utilization, 1 - utilization)
    return min(full, int(drawn * full + rest))


@dataclass(frozen=True)
class _RequestGroup:
    """A demand on one provider: amounts by resource class, and traits that the provider must and must not have."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    def matches_traits(self, node: Node) -> bool:
        """Return whether the provider has, or may have drawn, the required traits, and has no forbidden ones."""
        drawn = node.some_traits.names if node.some_traits else ()
        has = {*node.traits, *drawn}
        return all(has & each for each in self.required) and self.forbidden.isdisjoint(node.traits)


@dataclass(frozen=True)
class _Demand:
    """All groups; those in `isolated` need different providers, those in a `same_subtree` one above the others."""

    groups: tuple[_RequestGroup, ...]
    isolated: frozenset[str]
    same_subtree: tuple[frozenset[str], ...]


def _parse_demand(request: str) -> _Demand:
    """Parse the resources of the request; each class of the unsuffixed group becomes a group of its own."""
    parameters = parse_qsl(urlsplit(request).query)
    groups = tuple(_parse_groups(parameters))
    isolate = ("group_policy", "isolate") in parameters
    return _Demand(
        groups,
        isolated=frozenset(group.suffix for group in groups if group.suffix) if isolate else frozenset(),
        same_subtree=tuple(frozenset(value.split(",")) for key, value in parameters if key == "same_subtree"),
    )


def _parse_groups(parameters: list[tuple[str, str]]) -> Iterator[_RequestGroup]:
    for key, value in parameters:
        if not key.startswith("resources"):
            continue
        suffix = key.removeprefix("resources")
        parts = (part.partition(":") for part in value.split(","))
        amounts = tuple((name, int(amount)) for name, _, amount in parts if amount.isdecimal() and int(amount))
        if not suffix:
            yield from (_RequestGroup("", (each,)) for each in amounts)
        elif amounts:
            traits = [value for key, value in parameters if key == f"required{suffix}"]
            yield _RequestGroup(suffix, amounts, *_parse_traits(traits))


def _parse_traits(values: list[str]) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        if value.startswith("in:"):
            required.append(frozenset(value.removeprefix("in:").split(",")))
            continue
        for name in value.split(","):
            if name.startswith("!"):
                forbidden.add(name.lstrip("!"))
            else:
                required.append(frozenset({name}))
    return tuple(required), frozenset(forbidden)


class _FillingTree:
    """A tree while it is being filled with consumers."""

    def __init__(self, nodes: Sequence[Node], demand: _Demand) -> None:
        self._nodes = nodes
        self._demand = demand
        self._inventories = inventory_map(nodes)
        self._used: Counter[tuple[int, str]] = Counter()
        self._visits: Counter[int] = Counter()
        self._wanted: list[tuple[_RequestGroup, list[int]]] = []
        for group in demand.groups:
            places = [
                place
                for place, node in enumerate(nodes)
                if group.matches_traits(node)
                and all(self._allows((place, name), amount) for name, amount in group.resources)
            ]
            if places:
                self._wanted.append((group, places))
        self._attempts_left = 0

    def claim(self) -> Takes:
        """Return what the next consumer takes; empty if no further consumer fits."""
        self._attempts_left = _MAX_ATTEMPTS
        chosen = self._choose(()) if self._wanted else None
        if chosen is None:
            return ()
        self._visits.update(set(chosen))
        return tuple(Take(*key, amount) for key, amount in self._taken(chosen).items())

    def _allows(self, key: tuple[int, str], amount: int) -> bool:
        inventory = self._inventories.get(key)
        return inventory is not None and inventory.allows(amount)

    def _choose(self, chosen: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return a position for each group, preferring the least visited, and book the resources; None if none fits."""
        if len(chosen) == len(self._wanted):
            subtrees = self._demand.same_subtree
            fits = all(self._have_common_root(chosen, suffixes) for suffixes in subtrees) and all(
                self._allows(key, amount) for key, amount in self._taken(chosen).items()
            )
            return chosen if fits else None
        group, places = self._wanted[len(chosen)]
        for place in sorted(places, key=self._visits.__getitem__):
            self._attempts_left -= 1
            if self._attempts_left < 0:
                return None
            others = [other for (each, _), other in zip(self._wanted, chosen, strict=False) if each.suffix]
            if group.suffix in self._demand.isolated and place in others:
                continue
            if any(
                self._used[place, name] + amount > self._inventories[place, name].capacity
                for name, amount in group.resources
            ):
                continue
            self._book(group, place, 1)
            if complete := self._choose((*chosen, place)):
                return complete
            self._book(group, place, -1)
        return None

    def _book(self, group: _RequestGroup, place: int, sign: int) -> None:
        for name, amount in group.resources:
            self._used[place, name] += sign * amount

    def _have_common_root(self, chosen: tuple[int, ...], suffixes: frozenset[str]) -> bool:
        """Return whether one provider of the groups with these *suffixes* is at or above all others of them."""
        named = {place for (group, _), place in zip(self._wanted, chosen, strict=True) if group.suffix in suffixes}
        return not named or any(all(self._is_above(top, place) for place in named) for top in named)

    def _is_above(self, top: int, place: int) -> bool:
        above: int | None = place
        while above is not None and above != top:
            above = self._nodes[above].parent
        return above == top

    def _taken(self, chosen: tuple[int, ...]) -> Counter[tuple[int, str]]:
        taken: Counter[tuple[int, str]] = Counter()
        for (group, _), place in zip(self._wanted, chosen, strict=True):
            taken.update({(place, name): amount for name, amount in group.resources})
        return taken
