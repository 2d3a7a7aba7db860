"""The settings of Placement: what a plan says, how Placement is served with it, and the table of their effects."""

from pathlib import Path

import pytest
from fake_survey import VALUES, measured_again, write_survey
from reports import document_of, text_of

from placebench.compare.keep.records import Measurement
from placebench.compare.what.variants import Variant
from placebench.errors import PlacebenchError
from placebench.lab.inventory.topology import read_topology
from placebench.lab.studies.operators import Setting, read_plan
from placebench.results import Run

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


def operators_run(folder: Path, cpu_s: list[float]) -> Run:
    """A base of 4 s for 4 requests, and limit=10 with these CPU times, a repeat each."""
    made = [
        Measurement({"topology": "cern", "setting": setting}, repeat, {**VALUES["operators"], "cpu_s": spent_s})
        for repeat, seconds in enumerate(cpu_s)
        for setting, spent_s in (("as installed", 4.0), ("limit=10", seconds))
    ]
    return measured_again(write_survey(folder, "operators", repeats=len(cpu_s)), made)


def test_a_change_has_its_interval_from_six_repeats_on(tmp_path: Path) -> None:
    """Half the CPU in each of six repeats is half; the base is compared with nothing; five repeats have no limits."""
    base, limit = document_of(operators_run(tmp_path / "six", [2.0] * 6))["rows"]

    assert (1.0, None) == (base["cpu_s_per_request"], base["cpu_ratio"])
    assert pytest.approx((0.5, 0.5, 0.5)) == (limit["cpu_ratio"], limit["cpu_ratio_low"], limit["cpu_ratio_high"])
    assert (3.0, 1.0, 24, 0) == tuple(
        limit[name] for name in ("latency_s", "throughput_per_s", "requests", "unanswered")
    )
    five = document_of(operators_run(tmp_path / "five", [2.0] * 5))
    assert (pytest.approx(0.5), None) == (five["rows"][1]["cpu_ratio"], five["rows"][1]["cpu_ratio_low"])
    assert "limit=10" not in five["headline"]


def test_requests_without_a_response_are_counted_and_no_time_is_shown(tmp_path: Path) -> None:
    """A setting with which a client waits in vain has no CPU per request, and the summary says so."""
    nothing = dict.fromkeys(("candidates", "hosts", "elapsed_s", "latency_s", "cpu_s"))
    values = {"requests": 4, "unanswered": 4, **nothing}
    made = Measurement({"topology": "gpu-hosts", "setting": "as installed"}, 0, values)
    run = measured_again(write_survey(tmp_path / "run", "operators", repeats=1), [made])

    (row,) = document_of(run)["rows"]

    assert (4, 4, None, None, None) == tuple(
        row[name] for name in ("unanswered", "requests", "cpu_s_per_request", "latency_s", "hosts")
    )
    assert "4 of 4 requests" in text_of(run)
