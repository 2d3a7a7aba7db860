"""The commit in the manifest of a run that an installed package makes, as under tox."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from git_repository import commit_all, git

import placebench
from placebench.paths import resource_folder

pytestmark = pytest.mark.long

COMMIT = """
import sys
sys.path.insert(0, sys.argv[1])
from placebench.compare.keep import environment
assert environment.__file__.startswith(sys.argv[1])
print(environment._commit())
"""
BESIDE = ("schema", "locustfiles")
NO_CACHES = shutil.ignore_patterns("__pycache__", "_workbench")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit of this code, and beside it the same code as a wheel installs it."""
    folder = tmp_path_factory.mktemp("code")
    package = Path(placebench.__file__).parent
    made = folder / "checkout"
    for base, beside in ((made, made), (folder / "site", folder / "site" / "placebench" / "_workbench")):
        shutil.copytree(package, base / "placebench", ignore=NO_CACHES)
        for name in (*BESIDE, "loaders"):
            shutil.copytree(resource_folder(name), beside / name, ignore=NO_CACHES)
    commit_all(made, "one")
    return made


def commit_seen(checkout: Path, folder: Path) -> str:
    """What the installed package says, run in *folder*."""
    command = [sys.executable, "-c", COMMIT, str(checkout.parent / "site")]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.strip()


def test_it_is_that_of_the_checkout_with_the_same_code(checkout: Path, tmp_path: Path) -> None:
    """In the checkout and below it; nowhere else, and not once its code is another than what runs."""
    commit = git(checkout, "describe", "--always", "--abbrev=12")

    assert commit_seen(checkout, checkout) == commit
    assert commit_seen(checkout, checkout / "schema") == commit
    assert commit_seen(checkout, tmp_path) == "None"
    page = checkout / "placebench" / "report" / "__init__.py"
    page.write_text(f"{page.read_text()}\n# Reports change no measurement.\n")
    assert commit_seen(checkout, checkout) == f"{commit}-dirty"
    measured = checkout / "placebench" / "units.py"
    measured.write_text(f"{measured.read_text()}\n# This may.\n")
    assert commit_seen(checkout, checkout) == "None"
