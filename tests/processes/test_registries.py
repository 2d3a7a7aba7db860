"""What another package adds to placebench by name, with the metadata of an installed package."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = """
from placebench.commands import Entry
from placebench.compare.keep.documents import MeasuredPoint, RunKind, StudyHead, StudySettings
from placebench.compare.what.variants import Variant
from placebench.errors import VariantError
from placebench.report.study_report import StudyResults


class ShopVariants:
    def find(self, name, python=None):
        if name != "shop-v2":
            raise VariantError(f"no variant {name!r}: expected shop-v2")
        return Variant(name, module="shop:app")

    def change(self, baseline, variant):
        return None


class ShopData:
    def find(self, name, *, seed, trees, utilization, database):
        return f"{name} of the shop, seed {seed}", "/orders"


def results(run):
    return StudyResults("The shop is open.")


VARIANTS = {"shop": ShopVariants()}
DATA = {"shop": ShopData()}
SHOP_HOURS = RunKind(StudyHead[StudySettings[dict]], MeasuredPoint[dict, dict], "shop_benchmark:results")
RUNS = {"shop-hours": "shop_benchmark:SHOP_HOURS"}
COMMANDS = {
    "shop": Entry("the shop's commands"),
    "shop open": Entry("open the shop", "shop_benchmark.commands"),
    "compare": Entry("what placebench has already", "shop_benchmark.commands"),
}
"""
COMMANDS = """
from dataclasses import dataclass

from placebench.commands import Command


@dataclass(frozen=True)
class ShopOptions:
    hour: int


def _run(given):
    print(f"the shop is open until {given.hour}")
    return 0


COMMANDS = {
    "shop open": Command(lambda parser: parser.add_argument("hour", type=int), _run, options=ShopOptions)
}
"""
ENTRY_POINTS = """[placebench.commands]
shop = shop_benchmark:COMMANDS
[placebench.data]
shop = shop_benchmark:DATA
[placebench.runs]
shop = shop_benchmark:RUNS
[placebench.variants]
shop = shop_benchmark:VARIANTS
"""


@pytest.fixture
def run_with_shop(tmp_path: Path) -> Callable[[str], str]:
    """Run a program where a package beside placebench adds an entry to each registry; returns what it prints."""
    site = tmp_path / "site"
    metadata = site / "shop_benchmark-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-benchmark\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    package = site / "shop_benchmark"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "commands.py").write_text(COMMANDS)
    (site / "shop.py").write_text("def app(environ, start_response): ...\n")

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{program}"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_kind_of_variants_is_found_by_name(run_with_shop: Callable[[str], str]) -> None:
    """placebench's own names stay its own; a name that nobody knows is refused."""
    program = """
from placebench.compare.what.variants import read_variant
from placebench.errors import VariantError
print(read_variant("shop-v2").module, read_variant("naive").module)
try:
    read_variant("shop-v3")
except VariantError as error:
    print(error)
"""
    modules, refused = run_with_shop(program).splitlines()

    assert modules == "shop:app placebench.lab.reference.wsgi:application"
    assert refused.startswith("no variant 'shop-v3': expected a git revision, where [tool.placebench.app]")
    assert "; or naive, tuned" in refused


def test_a_kind_of_data_is_found_by_its_prefix(run_with_shop: Callable[[str], str]) -> None:
    """KIND:NAME names another package's data; a name without a kind is a topology."""
    program = """
from placebench.compare.what.data_setup import find_data
print(find_data("shop:winter", seed=7)[0])
print(find_data("nested-perfload", seed=7, trees=3)[0].trees)
"""
    assert run_with_shop(program).splitlines() == ["winter of the shop, seed 7", "3"]


def test_a_kind_of_run_is_read_and_reported(run_with_shop: Callable[[str], str]) -> None:
    """Its entry, which is text, is loaded; its records are checked by its types, and its function makes the results."""
    program = """
from placebench.compare.keep.documents import RUNS
from placebench.report.study_report import results_of
kind = RUNS.get("shop-hours")
print(kind.measurement is not None, results_of(kind)(None).headline, RUNS.get("herd") is not None)
"""
    assert run_with_shop(program) == "True The shop is open. True\n"


def test_a_command_is_called(run_with_shop: Callable[[str], str]) -> None:
    """It runs as one of placebench's own, which it cannot replace."""
    program = """
from placebench.cli import main
from placebench.commands import COMMANDS
print(main(["shop", "open", "18"]), COMMANDS.get("compare").module)
"""
    assert run_with_shop(program) == "the shop is open until 18\n0 placebench.commands.compare\n"
