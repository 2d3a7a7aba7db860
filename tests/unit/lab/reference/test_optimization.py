"""docs/lab/optimizations.md, alternatives.md and the plans say what the catalogue says."""

from pathlib import Path

import pytest

from placebench.compare.what.trials import read_plan
from placebench.compare.what.variants import read_variants
from placebench.errors import ServerError
from placebench.lab.reference.domain.optimization import REFERENCE_REQUEST, Optimization
from placebench.lab.reference.variants import CATALOGUE
from placebench.runtime.cache_server import find_cache_server

DOCS = Path(__file__).parents[4] / "docs" / "lab"
PAGE = (DOCS / "optimizations.md").read_text()
EXPERIMENTS = sorted((DOCS / "plans").glob("*.toml"))


def row(each: Optimization) -> str:
    """Its line in the table."""
    name = f"`{each.name}`" if each.alternative else "–"
    implementations = ", ".join(f"`{each.field}:{made.name}`" for made in each.implementations)
    request = f"`{each.request}`".replace(f"`{REFERENCE_REQUEST}", "the reference request with `").replace(
        " with ``", ""
    )
    return f"| {name} | {implementations} | {each.metric} | {each.data}, {request} | {each.why} | {each.source} |"


@pytest.mark.parametrize("each", CATALOGUE, ids=lambda each: each.field)
def test_the_table_has_each_step(each: Optimization) -> None:
    """Name, implementations, where it shows, why and source, word for word."""
    assert row(each) in PAGE.splitlines()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_each_experiment_can_be_run(path: Path) -> None:
    """Every variant exists, every trial says why and in what it should show, and the page names the file."""
    made = read_plan(path)

    assert f"placebench compare --plan docs/lab/plans/{path.name}" in (DOCS / "alternatives.md").read_text()
    if path.stem == "cache-service":
        try:
            find_cache_server()
        except ServerError as error:
            pytest.skip(str(error))
    assert len(read_variants(made.variants, made.tables)) == len(made.variants) >= 3
    assert [each.name for each in made.trials if not (each.shows_in and each.why)] == [
        name for name in ("tuned+driver:psycopg3+binding:expanding",) if path.stem == "drivers"
    ]
