"""What a request for candidates asks for, group by group: as much of it as it takes to claim something like it.

The key piece is `demand_of`. What decides among candidates and not about amounts (aggregates, roots) is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from placebench.topology.tree import Node


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
