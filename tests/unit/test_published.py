"""The published figures: pages say what the raw files say, and each raw file has its recipe."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]
RESULTS = TOP / "docs" / "results"
FIGURE = re.compile(r"\d×|[−+]\d[\d.]* %|\[[−+]\d[\d.]*, [−+]\d")
"""A factor, a change in percent, or an interval."""
SOURCE = re.compile(r"results/[\w-]+\.(?:json|md)|\]\([\w-]+\.json|raw file")
SECTION = re.compile(r"^#+ ", re.MULTILINE)


def bench(name: str) -> ModuleType:
    """A program of tests/bench as a module."""
    spec = importlib.util.spec_from_file_location(name, TOP / "tests" / "bench" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


published, results = bench("published"), bench("results")


@pytest.mark.parametrize(
    "page", [each for each in published.PAGES if published.MARKED.search(each.read_text())], ids=lambda page: page.stem
)
def test_marked_figures_are_those_of_the_raw_files(page: Path) -> None:
    """Each table and each figure between markers is computed from docs/results."""
    text = page.read_text(encoding="utf-8")

    assert text == published.written(text)


def test_a_wrong_figure_is_written_anew() -> None:
    """One digit is enough."""
    right = published.written("<!-- steps-total --><!-- / -->")

    assert published.written(right.replace("4.3×", "4.4×")) == right


@pytest.mark.parametrize(
    "page", [TOP / "README.md", *sorted(RESULTS.glob("*.md")), *sorted((TOP / "docs" / "lab").glob("*.md"))]
)
def test_other_figures_name_their_source(page: Path) -> None:
    """A section with an effect outside of markers links to a raw file or a result, or says that there is none."""
    sections = SECTION.split(page.read_text(encoding="utf-8"))
    figures = {each: FIGURE.search(re.sub("`[^`]*`", "", published.MARKED.sub("", each))) for each in sections}

    assert [found.group() for text, found in figures.items() if found and not SOURCE.search(text)] == []


def test_each_raw_file_has_its_recipe() -> None:
    """Every file of docs/results that is no page is made by one recipe."""
    files = [file for recipe in results.RECIPES for file in recipe.files]
    earlier = {"herd.jsonl"}  # by the command of the recipe that makes herd.json

    assert {each.name for each in RESULTS.iterdir() if each.suffix != ".md"} - set(files) == earlier
    assert len(files) == len(set(files))
