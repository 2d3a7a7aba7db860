"""From a live cloud to a topology: trees of the same shape become one kind, names become others, use becomes claims.

The door is `export`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placebench.errors import ExportError
from placebench.export.asking import usual_request
from placebench.export.disguise import Disguise
from placebench.export.live import Cloud, Provider
from placebench.export.trees import Shape, Tree, trees_of
from placebench.export.turns import claims_of
from placebench.export.use import Use
from placebench.topology import MOST_SHARE, Inventory, Kind, Node, Topology

NAME = "exported"


@dataclass(frozen=True)
class Exported:
    """The topology of a cloud, and what it does not say: each in one line."""

    topology: Topology
    providers: int
    consumers: int
    losses: tuple[str, ...]


def export(cloud: Cloud, *, salt: str, request: str | None = None) -> Exported:
    """The cloud as a topology of as many trees.

    request: what it is to be measured with, in the cloud's own names; by default what most consumers have.
    Raises ExportError for a cloud without providers, and for a request that cannot be translated.
    """
    disguise = Disguise(salt)
    hidden, unfit = _hidden(cloud, disguise)
    trees = trees_of(hidden)
    if not trees:
        raise ExportError("the cloud has no resource providers: there is nothing to export")
    use = Use(hidden, trees)
    kinds, sampled = _kinds(trees, use)
    topology = Topology(
        name=NAME,
        trees=len(trees),
        seed=1,
        request=usual_request(hidden) if request is None else disguise.request(request),
        kinds=kinds,
        aggregates_every=len(trees) if any(provider.aggregates for provider in cloud.providers) else None,
    )
    losses = _losses(unfit, use, sampled)
    return Exported(topology, len(cloud.providers), len(cloud.consumers), losses)


def _hidden(cloud: Cloud, disguise: Disguise) -> tuple[Cloud, int]:
    """The cloud with other names, and how many inventories it has that no topology may have, which are left out."""
    providers = [_provider(provider, disguise) for provider in cloud.providers]
    unfit = sum(len(each.inventories) for each in cloud.providers) - sum(len(each.inventories) for each in providers)
    consumers = {
        consumer: tuple(each._replace(resource_class=disguise.name(each.resource_class)) for each in allocations)
        for consumer, allocations in cloud.consumers.items()
    }
    return Cloud(tuple(providers), consumers), unfit


def _provider(provider: Provider, disguise: Disguise) -> Provider:
    return Provider(
        provider.uuid,
        provider.parent_uuid,
        tuple(
            replace(each, resource_class=disguise.name(each.resource_class))
            for each in provider.inventories
            if _fits(each)
        ),
        frozenset(map(disguise.name, provider.traits)),
        frozenset(map(disguise.aggregate, provider.aggregates)),
    )


def _fits(inventory: Inventory) -> bool:
    return 0 <= inventory.reserved <= inventory.total and inventory.total > 0 and inventory.allocation_ratio > 0


def _kinds(trees: Sequence[Tree], use: Use) -> tuple[tuple[Kind, ...], int]:
    """The kinds, the most frequent first, and in how many trees the use is not what it was."""
    numbers: defaultdict[Shape, list[int]] = defaultdict(list)
    for number, tree in enumerate(trees):
        numbers[tree.shape].append(number)
    kinds: list[Kind] = []
    sampled = 0
    for shape in sorted(numbers, key=lambda shape: (-len(numbers[shape]), shape)):
        nodes = _nodes(trees[numbers[shape][0]])
        claims, without = claims_of([use.of(number, nodes) for number in numbers[shape]])
        kinds.append(Kind(nodes, max(1, len(numbers[shape]) * MOST_SHARE // max(MOST_SHARE, len(trees))), claims))
        sampled += without
    return tuple(kinds), sampled


def _nodes(tree: Tree) -> tuple[Node, ...]:
    """The providers as nodes: p, below it p_0, p_1, …, below p_0 p_0_0, …"""
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


def _losses(unfit: int, use: Use, sampled: int) -> tuple[str, ...]:
    told = {
        "inventories left out, of nothing or with a reserve or ratio that no topology may have": unfit,
        "consumers of several trees, who are another one in each": use.split,
        "consumers left out of a tree, since Placement would not give today what they have": use.left_out,
        "trees whose use is left out, since a sample of their kind stands for it": sampled,
    }
    return tuple(f"{loss}: {count}" for loss, count in told.items() if count)
