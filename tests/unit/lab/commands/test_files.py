"""`placebench lab files` prints the folders that are opened by path."""

import json
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.paths import profiles_folder, resource_folder


def test_all_folders_with_their_paths(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has each folder, and `profiles` is where the next run goes, whether or not it exists."""
    assert main(["lab", "files", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown == {
        **{name: str(resource_folder(name)) for name in ("loaders", "locustfiles", "schema")},
        "profiles": str(profiles_folder()),
    }


def test_one_folder_can_be_used_in_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The path alone: the folder has the locustfiles."""
    assert main(["lab", "files", "locustfiles"]) == 0

    assert (Path(capsys.readouterr().out.removesuffix("\n")) / "claims.py").is_file()


def test_an_unknown_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the four that there are."""
    assert main(["lab", "files", "kitchen"]) == 2

    assert "'kitchen': expected one of loaders, locustfiles, profiles, schema" in capsys.readouterr().err
