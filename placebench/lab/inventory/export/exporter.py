"""Turn a live Placement into a topology: equal trees become one tree type, names and ids are replaced.

The main function is `export`. The same salt gives the same replacement names. Usage becomes claims of each tree type,
and a default request is derived from it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from math import gcd
from typing import Any
from uuid import UUID, uuid5

from placebench.errors import ExportError
from placebench.lab.inventory.export.live_placement import LiveProvider, PlacementData
from placebench.lab.inventory.topology import (
    MAX_WEIGHT,
    ClaimPattern,
    Node,
    Take,
    Takes,
    Topology,
    TreeType,
    inventory_map,
    is_standard,
)

_NAME = "exported"


@dataclass(frozen=True)
class Exported:
    """The topology of a live Placement, and one line for each kind of information that it lacks (`losses`)."""

    topology: Topology
    providers: int
    consumers: int
    losses: tuple[str, ...]


def export(data: PlacementData, *, salt: str, request: str | None = None) -> Exported:
    """Return a topology with as many trees as the data has.

    request: the request to measure with, in the names of the data; by default the most frequent claim of consumers.
    Raises ExportError if there are no providers, or if the request cannot be translated.
    """
    anonymiser = _Anonymiser(salt)
    anonymised, invalid = _anonymise(data, anonymiser)
    trees = _group_trees(anonymised)
    if not trees:
        raise ExportError("this Placement has no resource providers: there is nothing to export")
    use = _Usage(anonymised, trees)
    tree_types, sampled = _tree_types(trees, use)
    topology = Topology(
        name=_NAME,
        trees=len(trees),
        seed=1,
        request=_default_request(anonymised) if request is None else anonymiser.request(request),
        tree_types=tree_types,
        aggregates_every=len(trees) if any(provider.aggregates for provider in data.providers) else None,
    )
    losses = _describe_losses(invalid, use, sampled)
    return Exported(topology, len(data.providers), len(data.consumers), losses)


def _anonymise(data: PlacementData, anonymiser: _Anonymiser) -> tuple[PlacementData, int]:
    """Return the data with replaced names, and how many inventories were dropped because no topology may have them."""
    providers = [_anonymise_provider(provider, anonymiser) for provider in data.providers]
    invalid = sum(len(each.inventories) for each in data.providers) - sum(len(each.inventories) for each in providers)
    consumers = {
        consumer: tuple(each._replace(resource_class=anonymiser.name(each.resource_class)) for each in allocations)
        for consumer, allocations in data.consumers.items()
    }
    return PlacementData(tuple(providers), consumers), invalid


def _anonymise_provider(provider: LiveProvider, anonymiser: _Anonymiser) -> LiveProvider:
    return LiveProvider(
        provider.uuid,
        provider.parent_uuid,
        tuple(
            replace(each, resource_class=anonymiser.name(each.resource_class))
            for each in provider.inventories
            if 0 <= each.reserved <= each.total and each.total > 0 and each.allocation_ratio > 0
        ),
        frozenset(map(anonymiser.name, provider.traits)),
        frozenset(map(anonymiser.aggregate, provider.aggregates)),
    )


def _tree_types(trees: Sequence[_Tree], use: _Usage) -> tuple[tuple[TreeType, ...], int]:
    """Return the tree types, most frequent first, and the number of trees whose usage was replaced by a sample."""
    numbers: defaultdict[_Structure, list[int]] = defaultdict(list)
    for number, tree in enumerate(trees):
        numbers[tree.structure].append(number)
    tree_types: list[TreeType] = []
    sampled = 0
    for structure in sorted(numbers, key=lambda structure: (-len(numbers[structure]), structure)):
        nodes = _nodes(trees[numbers[structure][0]])
        claims, without = _claim_patterns([use.of(number, nodes) for number in numbers[structure]])
        weight = max(1, len(numbers[structure]) * MAX_WEIGHT // max(MAX_WEIGHT, len(trees)))
        tree_types.append(TreeType(nodes, weight, claims))
        sampled += without
    return tuple(tree_types), sampled


def _nodes(tree: _Tree) -> tuple[Node, ...]:
    """Return the providers of a tree as nodes with the names p, p_0 and p_1 (below p), p_0_0 (below p_0) and so on."""
    nodes: list[Node] = []
    below = [0] * len(tree.providers)
    for provider, parent in zip(tree.providers, tree.parents, strict=True):
        name = "p" if parent is None else f"{nodes[parent].name}_{below[parent]}"
        if parent is not None:
            below[parent] += 1
        nodes.append(
            Node(
                name,
                name if parent is None else f"{nodes[parent].path}/{name}",
                parent,
                tuple(sorted(provider.inventories, key=lambda each: each.resource_class)),
                tuple(sorted(provider.traits)),
                aggregates=tuple(sorted(provider.aggregates)),
            )
        )
    return tuple(nodes)


def _describe_losses(invalid: int, use: _Usage, sampled: int) -> tuple[str, ...]:
    losses = {
        "inventories left out, of nothing or with a reserve or ratio that no topology may have": invalid,
        "consumers of several trees, who are another one in each": use.split,
        "consumers left out of a tree, since Placement would not give today what they have": use.left_out,
        "trees whose use is left out, since a sample of their type stands for it": sampled,
    }
    return tuple(f"{loss}: {count}" for loss, count in losses.items() if count)


_Structure = tuple[Any, ...]


@dataclass(frozen=True)
class _Tree:
    """A tree: its structure, its providers (each after its parent), and the position of each provider's parent."""

    structure: _Structure
    providers: tuple[LiveProvider, ...]
    parents: tuple[int | None, ...]


@dataclass(frozen=True)
class _Branch:
    """A provider and the branches below it; siblings are sorted by structure, so that equal trees compare equal."""

    provider: LiveProvider
    structure: _Structure
    used: int
    below: tuple[_Branch, ...]


def _group_trees(data: PlacementData) -> list[_Tree]:
    children: defaultdict[str | None, list[LiveProvider]] = defaultdict(list)
    for provider in sorted(data.providers, key=lambda each: each.uuid):
        children[provider.parent_uuid].append(provider)
    used = Counter(allocation.provider_uuid for each in data.consumers.values() for allocation in each)
    trees = []
    for root in children[None]:
        branches = [_branch(root, children, used)]
        parents: list[int | None] = [None]
        for place, branch in enumerate(branches):  # which grows meanwhile
            branches += branch.below
            parents += [place] * len(branch.below)
        trees.append(_Tree(branches[0].structure, tuple(branch.provider for branch in branches), tuple(parents)))
    return trees


def _branch(provider: LiveProvider, children: dict[str | None, list[LiveProvider]], used: Counter[str]) -> _Branch:
    below = [_branch(child, children, used) for child in children.get(provider.uuid, [])]
    below.sort(key=lambda branch: (branch.structure, -branch.used))
    inventories = tuple(sorted(astuple(inventory) for inventory in provider.inventories))
    own = inventories, tuple(sorted(provider.traits)), tuple(sorted(provider.aggregates))
    return _Branch(
        provider,
        (*own, tuple(branch.structure for branch in below)),
        used[provider.uuid] + sum(branch.used for branch in below),
        tuple(below),
    )


_TreeUsage = Counter[Takes]
"""The number of consumers of a tree, by what each of them takes."""


class _Usage:
    """The allocations in the data, grouped by tree."""

    def __init__(self, data: PlacementData, trees: Sequence[_Tree]) -> None:
        self.split = 0
        """Number of consumers that take from several trees."""
        self.left_out = 0
        """Number of consumers that were left out of a tree."""
        self._homes = {
            provider.uuid: (number, place)
            for number, tree in enumerate(trees)
            for place, provider in enumerate(tree.providers)
        }
        self._takes: defaultdict[int, list[Takes]] = defaultdict(list)
        for allocations in data.consumers.values():
            by_tree: defaultdict[int, list[Take]] = defaultdict(list)
            for uuid, name, amount in allocations:
                number, place = self._homes[uuid]
                by_tree[number].append(Take(place, name, amount))
            self.split += len(by_tree) > 1
            for number, takes in by_tree.items():
                self._takes[number].append(tuple(sorted(takes)))

    def of(self, number: int, nodes: Sequence[Node]) -> _TreeUsage:
        inventories = inventory_map(nodes)
        taken: Counter[tuple[int, str]] = Counter()
        used: _TreeUsage = Counter()
        for takes in sorted(self._takes[number]):
            if all(
                (key := (place, name)) in inventories
                and inventories[key].allows(amount)
                and taken[key] + amount <= inventories[key].capacity
                for place, name, amount in takes
            ):
                used[takes] += 1
                taken.update({(place, name): amount for place, name, amount in takes})
            else:
                self.left_out += 1
        return used


_NAMESPACE = UUID("0d6f3c54-8a0e-5a59-9f0e-3f6f4a1f7f21")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_ID = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)


class _Anonymiser:
    """Makes replacement names with a salt, without which the original names cannot be found by trial."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def name(self, name: str) -> str:
        """Return the replacement of a resource class or trait: CUSTOM_ and twelve digits; standard names are kept."""
        return name if is_standard(name) else f"CUSTOM_{self._digits(name).upper()}"

    def aggregate(self, uuid: str) -> str:
        return f"aggregate-{self._digits(uuid)}"

    def request(self, request: str) -> str:
        """Return the request with replaced names; raise ExportError if it has ids, which the export replaces."""
        if found := _ID.search(request):
            raise ExportError(f"--request names {found[0]}: expected no ids, since the exported data has others")
        return _CUSTOM.sub(lambda name: self.name(name[0]), request)

    def _digits(self, name: str) -> str:
        return uuid5(_NAMESPACE, f"{self._salt}/{name}").hex[-12:]


_NOBODY = {"VCPU": [1]}


def _default_request(data: PlacementData) -> str:
    """Return path and query; a class that consumers take from several providers gets one group per amount."""
    amounts = _most_frequent_amounts(data)
    plain = {name: values[0] for name, values in amounts.items() if len(values) == 1}
    groups = [(name, value) for name, values in amounts.items() if len(values) > 1 for value in values]
    parameters = [f"resources={','.join(f'{name}:{amount}' for name, amount in plain.items())}"] if plain else []
    parameters += [f"resources_{number}={name}:{amount}" for number, (name, amount) in enumerate(groups)]
    if len(groups) > 1:
        parameters.append("group_policy=none")
    return f"/allocation_candidates?{'&'.join(parameters)}"


def _most_frequent_amounts(data: PlacementData) -> Mapping[str, Sequence[int]]:
    """Return the amounts that most consumers have, by class; without consumers, the most common minimum."""
    seen = Counter(
        tuple(sorted((name, amount) for _, name, amount in allocations)) for allocations in data.consumers.values()
    )
    if not seen:
        return _least_amounts(data)
    (usual, _), *_ = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    amounts: defaultdict[str, list[int]] = defaultdict(list)
    for name, amount in usual:
        amounts[name].append(amount)
    return amounts


def _least_amounts(data: PlacementData) -> Mapping[str, Sequence[int]]:
    inventories = Counter(
        (each.resource_class, -(-each.min_unit // each.step_size) * each.step_size)
        for provider in data.providers
        for each in provider.inventories
    )
    if not inventories:
        return _NOBODY
    (name, amount), _ = min(inventories.items(), key=lambda item: (-item[1], item[0]))
    return {name: [amount]}


MAX_PATTERNS = 200
_GOLDEN = (5**0.5 - 1) / 2


def _claim_patterns(used: Sequence[_TreeUsage]) -> tuple[tuple[ClaimPattern, ...], int]:
    """Return the claims on the trees of one type, and the number of trees that the claims do not represent.

    Each usage occurs as often as in the data, relative to the others, if there are at most MAX_PATTERNS usages.
    Otherwise MAX_PATTERNS of them represent all, chosen evenly from the emptiest tree to the fullest. The order is
    mixed, so that the first few are as full as the others.
    """
    counts = Counter(tuple(sorted(each.items())) for each in used)
    divisor = gcd(*counts.values())
    ordered = sorted(counts, key=lambda key: (sum(count for _, count in key), key))
    uses = [Counter(dict(key)) for key in ordered for _ in range(counts[key] // divisor)]
    if len(uses) > MAX_PATTERNS:
        uses = [uses[(2 * number + 1) * len(uses) // (2 * MAX_PATTERNS)] for number in range(MAX_PATTERNS)]
    patterns = [uses[number] for number in sorted(range(len(uses)), key=lambda number: number * _GOLDEN % 1)]
    every: list[Takes] = sorted(set().union(*patterns))
    claims = tuple(ClaimPattern(takes, tuple(pattern[takes] for pattern in patterns)) for takes in every)
    return claims, max(0, len(used) - len(patterns)) if len(patterns) == MAX_PATTERNS else 0
