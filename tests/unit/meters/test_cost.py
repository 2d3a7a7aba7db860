"""What a run costs."""

import subprocess
import sys
from pathlib import Path

import pytest

from placebench.meters.cost import CostMeter
from placebench.meters.readings import RunCost
from placebench.runtime.supervisor import ChildSpec, start_child

BUSY = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"


def write_zone(powercap: Path, zone: str, name: str, joules: float, *, wraps_at: int = 1000) -> None:
    """A domain of RAPL as the kernel shows it."""
    folder = powercap / zone
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{joules * 1e6:.0f}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_at * 1_000_000}\n")


@pytest.mark.processes
@pytest.mark.parametrize(("name", "part"), [("uwsgi", "servers"), ("client", "clients"), ("the command", "placebench")])
def test_the_cpu_of_a_child_counts_to_its_part(name: str, part: str, tmp_path: Path) -> None:
    """0.2 s of a child, and what its child took, once it has ended; not of those that ended before."""
    argv = [sys.executable, "-c", f"import subprocess\nsubprocess.run([{sys.executable!r}, '-c', {BUSY!r}])"]
    meter = CostMeter(powercap=tmp_path)
    with start_child(ChildSpec(name, argv)) as child:
        child.wait()
    cost = meter.read()

    assert 0.2 <= getattr(cost, f"{part}_cpu_s") < 5
    assert CostMeter(powercap=tmp_path).read().core_minutes < cost.core_minutes


@pytest.mark.processes
def test_what_runs_without_a_supervisor_counts_to_placebench(tmp_path: Path) -> None:
    """Such as git; servers and clients take nothing meanwhile."""
    meter = CostMeter(powercap=tmp_path)
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    cost = meter.read()

    assert cost.placebench_cpu_s >= 0.2
    assert (cost.servers_cpu_s, cost.clients_cpu_s, cost.databases_cpu_s) == (0, 0, 0)


def test_energy_adds_up_by_domain_over_the_end_of_a_counter(tmp_path: Path) -> None:
    """From 990 J over 1000 J to 15 J are 25 J; a part of the package is in the package already."""
    write_zone(tmp_path, "intel-rapl:0", "package-0", 990)
    write_zone(tmp_path, "intel-rapl:0/intel-rapl:0:0", "core", 5)
    write_zone(tmp_path, "intel-rapl:0/intel-rapl:0:1", "dram", 100)
    write_zone(tmp_path, "intel-rapl:1", "psys", 7)
    for zone in ("intel-rapl:0:0", "intel-rapl:0:1"):  # as in /sys/class/powercap
        (tmp_path / zone).symlink_to(tmp_path / "intel-rapl:0" / zone)
    meter = CostMeter(powercap=tmp_path)
    write_zone(tmp_path, "intel-rapl:0", "package-0", 15)
    write_zone(tmp_path, "intel-rapl:0/intel-rapl:0:1", "dram", 103)
    meter.read()
    write_zone(tmp_path, "intel-rapl:0", "package-0", 16)

    assert meter.read().energy_j == pytest.approx({"package-0": 26, "package-0 dram": 3})


def test_energy_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """As in most virtual machines."""
    assert CostMeter(powercap=tmp_path).read().energy_j is None


def test_sessions_add_up(tmp_path: Path) -> None:
    """What one of them could not read is not known of the whole."""
    write_zone(tmp_path, "intel-rapl:0", "package-0", 10)
    known = RunCost(60.0, 30.0, 30.0, 0.0, {"package-0": 5.0})
    unknown = RunCost(60.0, 30.0, None, 0.0, None)
    both, neither = (CostMeter(before, powercap=tmp_path).read() for before in (known, unknown))

    assert (both.servers_cpu_s, both.databases_cpu_s, both.energy_j) == (60.0, 30.0, {"package-0": 5.0})
    assert (neither.databases_cpu_s, neither.energy_j) == (None, None)
    assert both.core_minutes == pytest.approx(2.0, abs=0.05)


def test_a_server_on_another_machine_is_not_measured(tmp_path: Path) -> None:
    """Its CPU is not 0."""
    meter = CostMeter(powercap=tmp_path)
    meter.watch_server("postgresql+psycopg2://me@db.example.com/shop")

    assert meter.read().databases_cpu_s is None
    assert meter.read().figures(90)["databases_core_minutes"] is None
    assert meter.read().figures(90)["wall_minutes"] == 1.5
