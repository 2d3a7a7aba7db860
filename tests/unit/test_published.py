"""The published figures: pages say what the raw files say, and each raw file has its recipe."""

import importlib.util
import json
import math
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

from placebench.cli import parser
from placebench.profiler.analysis.sampling_error import SamplingError

TOP = Path(__file__).parents[2]
RESULTS = TOP / "docs" / "results"
FIGURE = re.compile(r"\d×|[−+]\d[\d.]* %|\[[−+]\d[\d.]*, [−+]\d")
"""A factor, a change in percent, or an interval."""
PAGES_WITH_RESULTS = ("explanation", "lab", "results", "start")
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
study_figures = sys.modules["study_figures"]


@pytest.mark.parametrize(
    "page", [each for each in published.PAGES if published.MARKED.search(each.read_text())], ids=lambda page: page.stem
)
def test_marked_figures_are_those_of_the_raw_files(page: Path) -> None:
    """Each table and each figure between markers is computed from docs/results."""
    text = page.read_text(encoding="utf-8")

    assert text == published.written(text)


def test_the_duration_of_each_recipe_is_known() -> None:
    """From its raw file, or by hand: steps has the wall time of its comparison."""
    (steps,) = (recipe for recipe in results.RECIPES if recipe.name == "steps")
    wall_minutes = json.loads((RESULTS / "steps.json").read_text())["cost"]["wall_minutes"]

    assert wall_minutes == results.expected_minutes(steps)
    assert [recipe.name for recipe in results.RECIPES if not results.expected_minutes(recipe)] == []


def test_the_elapsed_times_of_a_study_and_what_is_around_them_are_its_duration(tmp_path: Path) -> None:
    """Two measurements of 54 s with 6 s around each are two minutes."""
    recipe = results.Recipe("study", (str(tmp_path / "study.json"),))
    measured = {"values": {"steps": [{"elapsed_s": 50.0}, {"elapsed_s": 4.0}], "elapsed_s": None}}
    (tmp_path / "study.json").write_text(json.dumps({"measurements": [measured, measured]}))

    assert results.expected_minutes(recipe) == 2.0


def test_a_wrong_figure_is_written_anew() -> None:
    """One digit is enough."""
    right = published.written("<!-- steps-total --><!-- / -->")

    assert published.written(right.replace("4.3×", "4.4×")) == right


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ((12.3, 11.0, 14.0), "12.3 [11.0, 14.0]"),
        ((12.3, None, None), "12.3 [no interval]"),
        ((None,) * 3, "not measured"),
    ],
)
def test_a_rate_of_few_repeats_has_no_interval(rates: tuple[float | None, ...], shown: str) -> None:
    """The table is made all the same."""
    row = dict(zip(("knee_per_s", "knee_low_per_s", "knee_high_per_s"), rates, strict=True))

    assert shown == published._of_repeats(row, "knee")


def test_the_variance_of_runs_is_taken_apart() -> None:
    """Replicates 0, 2 and 10, 12: means 1 and 11 have a variance of 50, of which 2 / 2 are of the replicates."""
    made = published.components([[0.0, 2.0], [10.0, 12.0]])

    assert (made.runs, made.replicates, made.predicted_sd, made.between_sd) == (2, 2, 1.0, 7.0)
    assert made.observed_sd == pytest.approx(50**0.5)
    assert made.widening == pytest.approx(50**0.5)
    assert published.components([[0.0, 4.0], [0.5, 4.5]]).between_sd == 0.0


@pytest.mark.parametrize(
    "page",
    [TOP / "README.md", *chain(*((TOP / "docs" / name).glob("*.md") for name in PAGES_WITH_RESULTS))],
    ids=lambda page: page.stem,
)
def test_other_figures_name_their_source(page: Path) -> None:
    """A section with an effect outside of markers links to a raw file or a result, or says that there is none."""
    sections = SECTION.split(page.read_text(encoding="utf-8"))
    figures = {each: FIGURE.search(re.sub("`[^`]*`", "", published.MARKED.sub("", each))) for each in sections}

    assert [found.group() for text, found in figures.items() if found and not SOURCE.search(text)] == []


def test_sentences_that_compare_are_those_of_the_raw_files() -> None:
    """In words on the pages: what grows faster than the inventory; a release that is slower in each repeat; an event
    loop that serves fewer who wait in each repeat, with less CPU for the service in each."""
    waiting = study_figures.asyncio_ratios("database", "throughput_per_s", "uvicorn", 8)
    cpu = [study_figures.asyncio_ratios("query", "cpu_s", server, 1) for server in ("uvicorn", "granian")]

    growing = [published.growth(name) for name in ("cached", "tuned", "dedup", "placement", "naive")]
    assert growing == sorted(growing)
    assert growing[0] < 1 < growing[1]
    assert max(published.growth(name, 2) for name in ("cached", "dedup")) < 1 < published.growth("tuned", 2)
    assert all(published.growth(name, 1, 3) < 1 for name in ("cached", "dedup"))
    assert min(study_figures.release_ratios()) > 1
    assert max(waiting) < 1
    assert [sum(ratio > 1 for ratio in ratios) for ratios in cpu] == [0, 0]


@pytest.mark.parametrize(("mode", "interval_s"), [("sampled", 0.010), ("flame", 0.00025)])
def test_the_page_of_a_flame_graph_admits_as_much_as_was_measured(mode: str, interval_s: float) -> None:
    """By how much a share was wrong beside its margin, rounded up: in nine of ten programs, and in the worst."""
    *others, worst = published.flame_shifts_by_program(mode, "signals")

    assert len(others) == 9
    rounded_up = (math.ceil(others[-1] * 100) / 100, math.ceil(worst * 100) / 100)
    assert SamplingError(1.0, 1.0, 1.0, interval_s).shifts == rounded_up


def test_each_raw_file_has_its_recipe() -> None:
    """Every file of docs/results that is not a page is made by one recipe."""
    files = [file for recipe in results.RECIPES for file in recipe.files]

    assert {each.name for each in RESULTS.iterdir() if each.suffix != ".md"} <= set(files)
    assert len(files) == len(set(files))


@pytest.mark.processes
def test_each_raw_file_names_a_commit_of_this_history() -> None:
    """A figure can be measured anew with the code that it was measured with."""
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=TOP, capture_output=True, check=False)
    if shallow.stdout != b"false\n":
        pytest.skip("no full clone")

    assert [path.name for path in RESULTS.glob("*.json") if results.unknown_commits(path)] == []


@pytest.mark.parametrize("smoke", [False, True])
def test_recipes_name_commands_and_sections_that_exist(smoke: bool, tmp_path: Path) -> None:
    """Each command of placebench parses, and each section is one of the bench."""
    whole = parser()
    sections = re.findall(r'^    "([a-z-]+)": ', (TOP / "tests" / "bench" / "bench.py").read_text(), re.MULTILINE)

    for recipe in results.RECIPES:
        program, *words = next(iter(recipe.commands(tmp_path, tmp_path, smoke=smoke, placement=tmp_path / "python")))
        if program == "-m":
            parsed = whole.parse_args(words[1:])
            assert tmp_path / recipe.name == (parsed.file.with_suffix("") if recipe.history else parsed.out)
        else:
            assert words[0] in sections
            assert ("--smoke" in words) == smoke
