"""`tests/mutation/modules.toml`: which modules `tox -e mutation` mutates, and which survivors are accepted."""

import tomllib
from pathlib import Path

import pytest

import placebench

PACKAGE = Path(placebench.__file__).parent
TOP = Path(__file__).parents[2]
MODULES = tomllib.loads((TOP / "tests" / "mutation" / "modules.toml").read_text())


def test_all_modules_of_statistics_model_and_analysis_are_mutated() -> None:
    """A new one has to be listed with its tests."""
    mutated = {
        path.relative_to(PACKAGE).as_posix()
        for folder in ("stats", "profiler/model", "profiler/analysis")
        for path in (PACKAGE / folder).glob("*.py")
        if path.name != "__init__.py"
    }

    assert mutated - MODULES.keys() == set()


@pytest.mark.parametrize("name", MODULES)
def test_accepted_survivors_are_of_lines_that_there_are(name: str) -> None:
    """Tests exist; each accepted survivor has a reason, and its line is in the module, joined where it is several."""
    text = " ".join(line.strip() for line in (PACKAGE / name).read_text().splitlines())
    accepted = MODULES[name].get("accepted", [])
    files = [TOP / test.removeprefix("--deselect=").partition("::")[0] for test in MODULES[name]["tests"]]

    assert [file for file in files if not file.exists()] == []
    assert [each["line"] for each in accepted if each["line"] not in text] == []
    assert all(each["reason"] and each["mutants"] for each in accepted)
