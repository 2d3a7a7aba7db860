"""Turns a live Placement into a topology: equal trees become one tree type, names and ids are replaced.

The same salt gives the same replacement names. Usage becomes per-tree claims, and a default request is derived from it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from uuid import UUID, uuid5

from placebench.errors import ExportError
from placebench.export.live_placement import Cloud, Provider, Shape, Tree, Use, Used, trees_of
from placebench.topology import MOST_SHARE, Claim, Inventory, Kind, Node, Takes, Topology, is_standard

_NAMESPACE = UUID("0d6f3c54-8a0e-5a59-9f0e-3f6f4a1f7f21")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_ID = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)


class Disguise:
    """Makes the other names, with a salt without which nobody can try names until they fit."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def name(self, name: str) -> str:
        """That of a resource class or a trait: CUSTOM_ and twelve digits for one that is none of the standard's."""
        return name if is_standard(name) else f"CUSTOM_{self._digits(name).upper()}"

    def aggregate(self, uuid: str) -> str:
        """That of an aggregate."""
        return f"aggregate-{self._digits(uuid)}"

    def request(self, request: str) -> str:
        """The request with other names. Raises ExportError for one that names ids, which the new cloud has not got."""
        if found := _ID.search(request):
            raise ExportError(f"--request names {found[0]}: expected no ids, since the exported cloud has others")
        return _CUSTOM.sub(lambda name: self.name(name[0]), request)

    def _digits(self, name: str) -> str:
        return uuid5(_NAMESPACE, f"{self._salt}/{name}").hex[-12:]


_NOBODY = {"VCPU": [1]}


def usual_request(cloud: Cloud) -> str:
    """The path and query. A class that consumers have of several providers is asked for in as many groups, apart."""
    amounts = _usual(cloud)
    plain = {name: values[0] for name, values in amounts.items() if len(values) == 1}
    groups = [(name, value) for name, values in amounts.items() if len(values) > 1 for value in values]
    parameters = [f"resources={','.join(f'{name}:{amount}' for name, amount in plain.items())}"] if plain else []
    parameters += [f"resources_{number}={name}:{amount}" for number, (name, amount) in enumerate(groups)]
    if len(groups) > 1:
        parameters.append("group_policy=none")
    return f"/allocation_candidates?{'&'.join(parameters)}"


def _usual(cloud: Cloud) -> Mapping[str, Sequence[int]]:
    """What most consumers have, by class; without consumers, the least that most inventories give."""
    seen = Counter(
        tuple(sorted((name, amount) for _, name, amount in allocations)) for allocations in cloud.consumers.values()
    )
    if not seen:
        return _least(cloud)
    (usual, _), *_ = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    amounts: defaultdict[str, list[int]] = defaultdict(list)
    for name, amount in usual:
        amounts[name].append(amount)
    return amounts


def _least(cloud: Cloud) -> Mapping[str, Sequence[int]]:
    stocks = Counter(
        (each.resource_class, -(-each.min_unit // each.step_size) * each.step_size)
        for provider in cloud.providers
        for each in provider.inventories
    )
    if not stocks:
        return _NOBODY
    (name, amount), _ = min(stocks.items(), key=lambda item: (-item[1], item[0]))
    return {name: [amount]}


MOST_TURNS = 200
_GOLDEN = (5**0.5 - 1) / 2


def claims_of(used: Sequence[Used]) -> tuple[tuple[Claim, ...], int]:
    """The claims on the trees of one kind, and how many of the trees they do not represent.

    Each use comes as often as it does in the cloud, if there are no more than MOST_TURNS; otherwise so many stand for
    all, evenly from the emptiest tree to the fullest. The order is mixed: the first few are no emptier than the rest.
    """
    turns = _turns(used)
    every: list[Takes] = sorted(set().union(*turns))
    claims = tuple(Claim(takes, tuple(turn[takes] for turn in turns)) for takes in every)
    return claims, max(0, len(used) - len(turns)) if len(turns) == MOST_TURNS else 0


def _turns(used: Sequence[Used]) -> list[Used]:
    keys = [tuple(sorted(each.items())) for each in used]
    counts = Counter(keys)
    divisor = gcd(*counts.values())
    ordered = sorted(counts, key=lambda key: (sum(count for _, count in key), key))
    turns = [dict(key) for key in ordered for _ in range(counts[key] // divisor)]
    if len(turns) > MOST_TURNS:
        turns = [turns[(2 * number + 1) * len(turns) // (2 * MOST_TURNS)] for number in range(MOST_TURNS)]
    mixed = sorted(range(len(turns)), key=lambda number: number * _GOLDEN % 1)
    return [Counter(turns[number]) for number in mixed]


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
