"""The requests of perfload's comparison."""

import json

import pytest

from placebench.lab.inventory.seeding import find_topology
from placebench.lab.perfload.run import PerfloadSettings, open_load_s, ordinary_workload
from placebench.paths import resource_folder

TOPOLOGIES = sorted(path.stem for path in (resource_folder("loaders") / "topologies").glob("*.toml"))


def test_an_open_load_lasts_as_long_as_its_percentiles_need() -> None:
    """240 arrivals for p95 and some more, but at least 1 s, and at most 3 s: 60 at a rate of 20 still have a p50."""
    assert [open_load_s(rate, 1.0) for rate in (480.0, 120.0, 20.0)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("settings", [PerfloadSettings.default(), PerfloadSettings.quick()])
def test_each_step_has_a_load_and_a_profile(settings: PerfloadSettings) -> None:
    """All variants are loaded, counted and profiled; with the preset quick all are compared too."""
    assert settings.steps == 1 + settings.replicates + 3 * len(settings.variants) + len(settings.compared)
    assert set(PerfloadSettings.quick().compared) == set(PerfloadSettings.quick().variants)


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
