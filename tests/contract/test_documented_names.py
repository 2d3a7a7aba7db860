"""What the reference names is what there is: Python names, environment variables, exit codes, and nothing else."""

import re
from importlib import import_module
from pathlib import Path

from placebench import errors

TOP = Path(__file__).parents[2]
REFERENCE = TOP / "docs" / "reference"


def test_the_page_of_the_api_has_the_public_names() -> None:
    """Each module that it names a part of has exactly these names in its `__all__`."""
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    shown: dict[str, set[str]] = {}
    for module, _, name in (name.rpartition(".") for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)):
        shown.setdefault(module, set()).add(name)

    assert shown == {module: set(import_module(module).__all__) for module in shown}
    assert all(hasattr(import_module(module), name) for module, names in shown.items() for name in names)


def test_each_environment_variable_is_documented() -> None:
    """Every PLACEBENCH_… that the package reads is in the reference, and none that it does not."""
    code = "".join(path.read_text() for path in (TOP / "placebench").rglob("*.py"))
    read_by_code = set(re.findall(r"PLACEBENCH_[A-Z_]*[A-Z]", code))

    page = (REFERENCE / "environment.md").read_text(encoding="utf-8")

    assert set(re.findall(r"PLACEBENCH_[A-Z_]*[A-Z]", page)) == read_by_code


def test_each_exit_code_is_documented() -> None:
    """Those of the errors, of a bug, of an interruption and of a reader that went away; the help names no other."""
    page = (REFERENCE / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    of_errors = {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}

    assert documented == {0, *of_errors, 70, 130, 141}
