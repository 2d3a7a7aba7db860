"""The requests of perfload's comparison."""

import json

import pytest

from placebench.lab.inventory.seeding import find_topology
from placebench.lab.perfload.run import ordinary_workload
from placebench.paths import resource_folder

TOPOLOGIES = sorted(path.stem for path in (resource_folder("loaders") / "topologies").glob("*.toml"))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_one_write_per_ten_different_requests(name: str) -> None:
    """On each data set: a claim that its providers allow, then nine reads, of which none is the request of the loads,
    since that is sent to data without the claim."""
    topology = find_topology(name, trees=4, seed=1)
    made = ordinary_workload(topology)

    write, *reads = made.calls
    labels = [each.label for each in made.calls]
    assert (write.method, {each.method for each in reads}) == ("PUT", {"GET"})
    assert len(set(labels)) == len(made.cycle) == 10
    assert made.cycle == tuple(range(10))
    assert sum(label.startswith("/allocation_candidates") for label in labels) == 6
    assert topology.request not in labels
    claimed = json.loads(write.body)["allocations"]
    providers = {each.uuid: each for number in range(4) for each in topology.tree(number)}
    for provider, entry in claimed.items():
        inventories = {each.resource_class: each for each in providers[provider].inventories}
        assert all(inventories[taken].allows(amount) for taken, amount in entry["resources"].items())
