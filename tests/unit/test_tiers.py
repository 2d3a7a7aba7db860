"""Each test is in one of two tiers, the quick or the long one, and CI runs both."""

import configparser
import re
import shlex
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def arguments(environment: str) -> list[str]:
    """The arguments that pytest has in an environment of tox, if none follow `--`."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOP / "tox.ini")
    (found,) = re.findall(r"\{posargs:(.*)\}", tox[environment]["commands"], re.DOTALL)
    return shlex.split(found.replace("\\\n", ""))


def test_what_the_quick_tier_leaves_out_is_in_the_long_one() -> None:
    """The quick tier collects all folders; the long one those with a long test. tests/unit, half of all, has none."""
    quick, long = arguments("testenv"), arguments("testenv:long")
    marked = {
        f"tests/{path.relative_to(TOP / 'tests').parts[0]}"
        for path in (TOP / "tests").rglob("*.py")
        if "pytest.mark.long" in path.read_text(encoding="utf-8") and path != Path(__file__)
    }

    at = long.index("-m")
    assert (["-m", "not long"], "long") == (quick[-2:], long[at + 1])
    assert [part for part in quick if "tests" in part] == []
    assert marked == set(long[at + 2 :])


@pytest.mark.skipif(not (TOP / ".ci").is_dir(), reason="a checkout without its CI")
def test_ci_runs_both_tiers() -> None:
    """Before a change lands, and on every Python."""
    run = (TOP / ".ci" / "run").read_text(encoding="utf-8")
    workflow = (TOP / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")

    assert "\nenv_list = py, lint, docs\n" in (TOP / "tox.ini").read_text(encoding="utf-8")
    assert "\nstep run-parallel " in run
    assert "step -e long ||" in run
    assert "\nnames=(long " in run
    assert "tox run -e py,long,lint\n" in workflow
