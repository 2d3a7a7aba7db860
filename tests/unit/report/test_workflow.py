"""The workflows for CI say nothing that the program does not understand, and run the tests on every Python."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from placebench.cli import parser
from placebench.report import parse_gates

WORKFLOW = Path(__file__).parents[3] / ".github" / "workflows" / "perfload.yml"


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="a checkout without its workflows")
def test_its_gates_are_gates_of_counts() -> None:
    """Each can be read, and none is of a time: shared runners are noisy."""
    gates = parse_gates(re.findall(r"--gate '([^']*)'", WORKFLOW.read_text()))

    assert [gate.metric for gate in gates] == ["statements", "round_trips", "rows"]
    assert {(gate.operator, gate.value, gate.is_ratio) for gate in gates} == {("<=", 1.0, True)}


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="a checkout without its workflows")
def test_what_was_measured_is_kept_on_failure() -> None:
    """Artifacts and summary come whatever happened before."""
    steps = WORKFLOW.read_text().split("- name: ")

    kept = [step for step in steps if "upload-artifact" in step or "GITHUB_STEP_SUMMARY" in step]
    assert len(kept) == 2
    assert all("if: always()" in step for step in kept)


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="a checkout without its workflows")
def test_its_commands_are_understood() -> None:
    """Each call of placebench is a command line of this version: a headless run of the change, base against change."""
    text = re.sub(r"\n +(?=\.\.|--|\")", " ", WORKFLOW.read_text())
    calls = [shlex.split(line) for line in re.findall(r"bin/placebench ([^|\n]+)", text)]
    perfload, compare = (parser().parse_args(call) for call in calls)

    assert (perfload.command, perfload.preset, str(perfload.out)) == ("lab perfload", "quick", "profiles/perfload")
    assert (compare.command, str(compare.out), compare.trees) == ("compare", "profiles/compare", 100)
    assert [compare.base, *compare.variants, str(compare.plan)] == ["base", "change", "plan.toml"]


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="a checkout without its workflows")
def test_it_compares_variants_that_ask_the_database_each_time() -> None:
    """cached, which is served where no variant is named, would serve the body that it keeps."""
    text = WORKFLOW.read_text()
    named = re.findall(r"variant: \[(.*)\]", text)

    assert named == ["tuned, dedup"]
    assert 'PLACEBENCH_VARIANT = "${{ matrix.variant }}"' in text


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="a checkout without its workflows")
def test_the_tests_run_on_every_python() -> None:
    """From the oldest that pyproject.toml allows to the newest there is."""
    project = tomllib.loads((WORKFLOW.parents[2] / "pyproject.toml").read_text())["project"]
    (pythons,) = re.findall(r"python: \[(.*)\]", WORKFLOW.with_name("tests.yml").read_text())

    assert [">=3.11", '"3.11", "3.12", "3.13", "3.14"'] == [project["requires-python"], pythons]
