"""Fills one provider tree with consumers until no request of the topology fits any more, or until a utilization is met.

The main functions are `filled` and `demand_of`: each consumer takes what the topology's request asks for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from placebench.topology.tree import Node, Take, Takes, capacity, gives, stocks_of


@dataclass(frozen=True)
class Group:
    """What comes from one provider: amounts by class, and the traits that it must have and must not have."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    def suits(self, node: Node) -> bool:
        """Whether the provider has such traits, or may have drawn them."""
        drawn = node.some_traits.names if node.some_traits else ()
        has = {*node.traits, *drawn}
        return all(has & each for each in self.required) and self.forbidden.isdisjoint(node.traits)


@dataclass(frozen=True)
class Demand:
    """All groups; those of `apart` from different providers, those of each of `near` with one above the others."""

    groups: tuple[Group, ...]
    apart: frozenset[str] = frozenset()
    near: tuple[frozenset[str], ...] = ()


def demand_of(request: str) -> Demand:
    """What the request asks for; each class of the group without a suffix is a group of its own here."""
    parameters = parse_qsl(urlsplit(request).query)
    groups = tuple(_groups(parameters))
    isolated = ("group_policy", "isolate") in parameters
    return Demand(
        groups,
        apart=frozenset(group.suffix for group in groups if group.suffix) if isolated else frozenset(),
        near=tuple(frozenset(value.split(",")) for key, value in parameters if key == "same_subtree"),
    )


def _groups(parameters: list[tuple[str, str]]) -> Iterator[Group]:
    for key, value in parameters:
        if not key.startswith("resources"):
            continue
        suffix = key.removeprefix("resources")
        amounts = tuple(_amounts(value))
        if not suffix:
            yield from (Group("", (each,)) for each in amounts)
        elif amounts:
            traits = [value for key, value in parameters if key == f"required{suffix}"]
            yield Group(suffix, amounts, *_traits(traits))


def _amounts(value: str) -> Iterator[tuple[str, int]]:
    for part in value.split(","):
        resource_class, _, amount = part.partition(":")
        if amount.isdecimal() and int(amount):
            yield resource_class, int(amount)


def _traits(values: list[str]) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
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


MOST = 10_000
"""Consumers in one tree."""
_PATIENCE = 10_000  # providers that are tried for one consumer


def all_that_fit(nodes: Sequence[Node], demand: Demand) -> list[Takes]:
    """The consumers of a full tree, in an order in which any first ones are spread evenly over the providers."""
    tree = _Tree(nodes, demand)
    found: list[Takes] = []
    while len(found) < MOST and (takes := tree.claim()):
        found.append(takes)
    return found


def drawn(chance: int, fill: float, most: int) -> int:
    """How many of the *most* consumers of a full tree there are in one that draws *chance*, a number below 2**160.

    A tree is filled to anything between 2 * fill - 1 and 2 * fill that is within 0 and 1, and to *fill* on average.
    """
    level, rest = (part / 2**80 for part in divmod(chance, 2**80))
    return min(most, int((fill + (2 * level - 1) * min(fill, 1 - fill)) * most + rest))


class _Tree:
    """A tree that is being filled."""

    def __init__(self, nodes: Sequence[Node], demand: Demand) -> None:
        self._nodes = nodes
        self._demand = demand
        self._stocks = stocks_of(nodes)
        self._used: Counter[tuple[int, str]] = Counter()
        self._visits: Counter[int] = Counter()
        possible = [(group, self._places(group)) for group in demand.groups]
        self._wanted = [(group, places) for group, places in possible if places]
        self._patience = 0

    def claim(self) -> Takes:
        """What the next consumer takes; nothing when no more fit."""
        self._patience = _PATIENCE
        chosen = self._choose(()) if self._wanted else None
        if chosen is None:
            return ()
        self._visits.update(set(chosen))
        return tuple(Take(*key, amount) for key, amount in self._taken(chosen).items())

    def _places(self, group: Group) -> list[int]:
        return [
            place
            for place, node in enumerate(self._nodes)
            if group.suits(node) and all(self._gives((place, name), amount) for name, amount in group.resources)
        ]

    def _gives(self, key: tuple[int, str], amount: int) -> bool:
        stock = self._stocks.get(key)
        return stock is not None and gives(stock, amount)

    def _choose(self, chosen: tuple[int, ...]) -> tuple[int, ...] | None:
        """A place for each group, the least visited first; what they take is booked."""
        if len(chosen) == len(self._wanted):
            return chosen if self._is_near(chosen) and self._is_legal(chosen) else None
        group, places = self._wanted[len(chosen)]
        for place in sorted(places, key=self._visits.__getitem__):
            self._patience -= 1
            if self._patience < 0:
                return None
            if not self._is_apart(group, place, chosen) or not self._has_room(group, place):
                continue
            self._book(group, place, 1)
            if found := self._choose((*chosen, place)):
                return found
            self._book(group, place, -1)
        return None

    def _book(self, group: Group, place: int, sign: int) -> None:
        for name, amount in group.resources:
            self._used[place, name] += sign * amount

    def _has_room(self, group: Group, place: int) -> bool:
        return all(
            self._used[place, name] + amount <= capacity(self._stocks[place, name]) for name, amount in group.resources
        )

    def _is_apart(self, group: Group, place: int, chosen: tuple[int, ...]) -> bool:
        others = [other for (each, _), other in zip(self._wanted, chosen, strict=False) if each.suffix]
        return group.suffix not in self._demand.apart or place not in others

    def _is_near(self, chosen: tuple[int, ...]) -> bool:
        return all(self._have_top(chosen, suffixes) for suffixes in self._demand.near)

    def _have_top(self, chosen: tuple[int, ...], suffixes: frozenset[str]) -> bool:
        """Whether one of the groups' providers stands above all others of them."""
        named = {place for (group, _), place in zip(self._wanted, chosen, strict=True) if group.suffix in suffixes}
        return not named or any(all(self._stands_above(top, place) for place in named) for top in named)

    def _stands_above(self, top: int, place: int) -> bool:
        above: int | None = place
        while above is not None and above != top:
            above = self._nodes[above].parent
        return above == top

    def _is_legal(self, chosen: tuple[int, ...]) -> bool:
        return all(self._gives(key, amount) for key, amount in self._taken(chosen).items())

    def _taken(self, chosen: tuple[int, ...]) -> Counter[tuple[int, str]]:
        taken: Counter[tuple[int, str]] = Counter()
        for (group, _), place in zip(self._wanted, chosen, strict=True):
            taken.update({(place, name): amount for name, amount in group.resources})
        return taken
