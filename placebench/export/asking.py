"""A request for a cloud that nobody said how to measure: it asks for what most of its consumers have.

The key piece is `usual_request`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from placebench.export.live import Cloud

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
