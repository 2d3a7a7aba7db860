"""The settings of Placement: what a plan says, and how Placement is served with it."""

from pathlib import Path

import pytest

from placebench.compare.what.variants import Variant
from placebench.errors import PlacebenchError
from placebench.lab.inventory.topology import read_topology
from placebench.lab.studies.operators import Setting, read_plan

PLACEMENT = Variant("placement", module="placement.wsgi.api:application", variables={"OS_API__AUTH": "noauth2"})
DATABASE = "postgresql://localhost/x"


def test_an_option_of_placement_is_a_variable_of_its_process() -> None:
    """By group and name, as oslo.config reads it; the variables of the variant stay."""
    setting = Setting("k", processes=4, options={"workarounds": {"optimize_for_wide_provider_trees": True}})

    spec = setting.spec(PLACEMENT, DATABASE, hash_seed=7, log=Path("x.log"))

    assert ("True", "noauth2", "7", 4, 1) == (
        spec.environment["OS_WORKAROUNDS__OPTIMIZE_FOR_WIDE_PROVIDER_TREES"],
        spec.environment["OS_API__AUTH"],
        spec.environment["PYTHONHASHSEED"],
        spec.processes,
        spec.threads,
    )
    assert PLACEMENT.module == spec.module
    assert "frozen" in Setting("f", freeze=True).spec(PLACEMENT, DATABASE, hash_seed=1, log=Path("x.log")).module


def test_a_limit_replaces_that_of_the_request() -> None:
    """The rest of the request stays as it is, and a setting without a limit changes nothing."""
    request = "/allocation_candidates?resources=VCPU:4,DISK_GB:40&limit=1000"

    assert "/allocation_candidates?resources=VCPU:4,DISK_GB:40&limit=10" == Setting("k", limit=10).request(request)
    assert request == Setting("k").request(request)


def test_the_plan_that_comes_with_placebench_names_inventories_that_exist() -> None:
    """The base first, each setting once, and CERN's 8500 nodes have 60 000 providers."""
    plan, folder = read_plan(), Path(__file__).parents[4] / "loaders" / "topologies"
    topologies = [read_topology(folder / f"{name}.toml", seed=1) for name in plan.inventories]

    assert "as installed" == plan.settings[0].name
    assert len(plan.settings) == len({setting.name for setting in plan.settings})
    assert [60_000, 10_000, 180] == [topology.providers for topology in topologies]


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    """With the file."""
    plan = tmp_path / "plan.toml"
    plan.write_text('inventories = ["cern"]\n[[settings]]\nname = "x"\nprocesess = 4\n')

    with pytest.raises(PlacebenchError, match=r"plan\.toml.*procesess"):
        read_plan(plan)
