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


def test_each_test_is_in_one_tier() -> None:
    """Both collect all folders: what the quick tier leaves out is what the long one runs."""
    quick, long = arguments("testenv"), arguments("testenv:long")

    assert (["-m", "not long"], ["-m", "long"]) == (quick[-2:], long[-2:])
    assert [part for part in (*quick, *long) if "tests" in part] == []


@pytest.mark.skipif(not (TOP / ".ci").is_dir(), reason="a checkout without its CI")
def test_ci_runs_both_tiers() -> None:
    """Before a change lands, and on every Python."""
    run = (TOP / ".ci" / "run").read_text(encoding="utf-8")
    workflow = (TOP / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")

    assert "\nenv_list = py, lint, docs\n" in (TOP / "tox.ini").read_text(encoding="utf-8")
    assert "\nstep run-parallel " in run
    assert " -m long \\\n        @build/ci-long-tests || again py\n" in run
    assert "\nnames=(long " in run
    assert "tox run -e py,long,lint\n" in workflow
