"""What the CI job of a project is written with, by the files that are there."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from placebench.ci.project import CiProject, ServiceName, guess_service, read_project
from placebench.ci.services import job_text
from placebench.errors import UsageError

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
DESCRIBED = '[tool.placebench.app]\napp = "shop:app"\n'
ACTIVE = '"$(command -v python)"'


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("setup.py", CiProject(OWN, ("pip install .",), ACTIVE, "pyproject.toml")),
        ("requirements.txt", CiProject(OWN, ("pip install -r requirements.txt",), ACTIVE, "requirements.txt")),
        ("uv.lock", CiProject(OWN, ("pip install uv", "uv sync --frozen"), ".venv/bin/python", "uv.lock")),
        (
            "poetry.lock",
            CiProject(
                OWN,
                ("pip install poetry", "poetry install --no-interaction"),
                '"$(poetry env info --executable)"',
                "poetry.lock",
            ),
        ),
    ],
)
def test_a_project_is_installed_by_the_files_that_it_has(file: str, expected: CiProject, tmp_path: Path) -> None:
    """A lock file comes before requirements, and those before the project itself."""
    (tmp_path / "pyproject.toml").write_text(DESCRIBED)
    (tmp_path / file).touch()

    assert read_project(tmp_path) == expected


def test_the_python_of_the_table_is_there_in_the_job(tmp_path: Path) -> None:
    """The table's Python comes before --python: the job makes its environment at that place."""
    (tmp_path / "pyproject.toml").write_text(f'{DESCRIBED}python = "env/bin/python"\n')
    (tmp_path / "requirements.txt").touch()

    made = read_project(tmp_path)

    assert made.install == ("python -m venv env", "env/bin/python -m pip install -r requirements.txt")
    assert made.interpreter == "env/bin/python"


@pytest.mark.parametrize(
    ("python", "file"),
    [("env/bin/python", "uv.lock"), (".venv/bin/python", "poetry.lock"), ("/srv/env/bin/python", "requirements.txt")],
)
def test_a_python_that_the_job_has_not_is_named(python: str, file: str, tmp_path: Path) -> None:
    """uv and poetry choose the place of their environment; an absolute path is one of this machine."""
    (tmp_path / "pyproject.toml").write_text(f'{DESCRIBED}python = "{python}"\n')
    (tmp_path / file).touch()

    with pytest.raises(UsageError, match=f"has python = '{python}', and the job has the application in "):
        read_project(tmp_path)


@pytest.mark.parametrize(
    ("pinned", "permitted", "expected"),
    [
        ("3.12.4\n", ">=3.11", "3.12"),
        ("", "==3.13.*", "3.13"),
        ("", "~=3.12", "3.12"),
        ("", ">=3.11,<=3.13", "3.13"),
        ("", ">=3.10,<3.13", "3.12"),
        ("", ">=3.11", OWN),
    ],
)
def test_the_python_is_one_that_the_project_permits(pinned: str, permitted: str, expected: str, tmp_path: Path) -> None:
    """The pinned one, else the newest below the upper bound, else the one that runs now."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nrequires-python = "{permitted}"\n{DESCRIBED}')
    if pinned:
        (tmp_path / ".python-version").write_text(pinned)

    assert read_project(tmp_path).python == expected


@pytest.mark.parametrize(
    ("keys", "gates"),
    [
        ("", ["statements <= 1.0x", "round_trips <= 1.0x", "rows <= 1.0x"]),
        ('database = "sqlite"\n', ["statements <= 1.0x", "rows <= 1.0x"]),
        ('template_db = "sqlite:///db.sqlite3"\n', ["statements <= 1.0x", "rows <= 1.0x"]),
        ('database = "none"\n', []),
    ],
)
@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_job_gates_only_what_is_counted_on_its_database(
    service: ServiceName, keys: str, gates: list[str], tmp_path: Path
) -> None:
    """The profiler counts on SQLite: the job installs placebench, without its extra, beside the application too."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.placebench]\n{keys}{DESCRIBED}")
    (tmp_path / "requirements.txt").touch()

    text = job_text(service, read_project(tmp_path), source="placebench[bench]==9")

    assert gates == re.findall(r"--gate '(.*)'", text)
    assert ("sqlite" in keys) == (f"-m pip --python {ACTIVE} install --quiet 'placebench==9'" in text)
    assert yaml.safe_load(text)


@pytest.mark.parametrize(("database", "gates"), [("sqlite", 0), ("none", 0), ("postgresql", 3)])
def test_statements_of_a_command_are_counted_on_postgresql_alone(database: str, gates: int, tmp_path: Path) -> None:
    """The profiler does not enter a command, so that a gate on its count would never pass."""
    described = f'[tool.placebench]\ndatabase = "{database}"\n[tool.placebench.app]\ncommand = "shop {{port}}"\n'
    (tmp_path / "pyproject.toml").write_text(described)
    (tmp_path / "requirements.txt").touch()

    text = job_text("github", read_project(tmp_path), source="placebench[bench]==9")

    assert gates == text.count("--gate ")
    assert "-m pip --python" not in text


@pytest.mark.parametrize("text", [None, DESCRIBED, "[project]\n", "[tool.placebench]\ntrees = 1\n", "[tool"])
def test_a_project_that_no_comparison_would_start_for_is_refused(text: str | None, tmp_path: Path) -> None:
    """Without a file, the table of the application or anything to install, or with a broken file: one line."""
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        read_project(tmp_path)


def test_the_service_is_the_one_that_the_repository_points_to(tmp_path: Path) -> None:
    """By its remote, or by its files; with none or with both the user is asked."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n    url = git@gitlab.example.org:team/shop.git\n')

    assert guess_service(tmp_path) == "gitlab"
    (tmp_path / ".github").mkdir()
    with pytest.raises(UsageError, match="github or gitlab"):
        guess_service(tmp_path)
    (tmp_path / ".git" / "config").unlink()
    assert guess_service(tmp_path) == "github"
    (tmp_path / ".github").rmdir()
    with pytest.raises(UsageError, match="github or gitlab"):
        guess_service(tmp_path)
