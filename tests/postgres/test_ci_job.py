"""The jobs that `placebench ci init` writes: valid for their services, and their shell parts do what they say.

What fetches packages is not run: the steps that install are replaced by the environment of the tests.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from git_repository import commit_all, git

from placebench.cli import main
from placebench.runtime.postgres import Server

APP = """
import os
from flask import Flask
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["DATABASE_URL"])
app = Flask(__name__)

@app.get("/")
def index():
    with engine.connect() as connection:
        return "".join(str(connection.scalar(text("SELECT 7"))) for _ in range({times}))[:1]
"""
TOML = """
[tool.placebench]
setup = "true"
request = "/"

[tool.placebench.app]
app = "shop:app"
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose newest commit runs two statements more than the one before, with the same response.

    It is a merge with the newest base, as GitHub and GitLab's merged results make one.
    """
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(TOML)
    (folder / "requirements.txt").touch()
    for times in (1, 3):
        (folder / "shop.py").write_text(APP.replace("{times}", str(times)))
        commit_all(folder, f"Ask {times} times")
    git(folder, "branch", "change")
    git(folder, "reset", "-q", "--hard", "HEAD^")
    commit_all(folder, "The newest base")
    git(folder, "merge", "-q", "--no-edit", "change")
    monkeypatch.chdir(folder)
    return folder


def job_of(service: str) -> Any:
    """The file that the command writes, as YAML; counts alone are compared, to be quick."""
    assert main(["ci", "init", service, "--source", "placebench[bench]==9", "--gate", "statements <= 1x"]) == 0
    path = {"github": ".github/workflows/placebench.yml", "gitlab": ".gitlab/placebench.yml"}[service]
    return yaml.load(Path(path).read_text().replace("--preset quick", "-n 0"), yaml.BaseLoader)


def run_script(script: str, runner: Path, server: Server, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a step as the service does, with placebench where the job installs it."""
    own = runner / "placebench" / "bin"
    own.mkdir(parents=True, exist_ok=True)
    for name, target in (("placebench", Path(sys.executable).with_name("placebench")), ("python", sys.executable)):
        if not (own / name).exists():
            (own / name).write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
            (own / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PLACEBENCH_DATABASE_URL": server.url,
        "RUNNER_TEMP": str(runner),
        **variables,
    }
    return subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_the_file_is_valid_for_its_service(service: str, shop: Path) -> None:
    """By the schema that the service's editors use; the file of GitHub has no action without a pinned commit."""
    job = job_of(service)
    path = shop / "job.yml"
    written = next(shop.glob(".git[hl]*/**/placebench.yml"))
    path.write_text(written.read_text())
    schema = {"github": "vendor.github-workflows", "gitlab": "vendor.gitlab-ci"}[service]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout
    if service == "github":
        used = [step["uses"] for step in job["jobs"]["compare"]["steps"] if "uses" in step]
        assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", each) for each in used)


@pytest.mark.long
def test_the_job_of_github_fails_and_says_where(shop: Path, tmp_path: Path, server: Server) -> None:
    """Two statements more than the base: exit code 1, the summary on the job's page, and a line for the failed gate."""
    steps = {step["name"]: step for step in job_of("github")["jobs"]["compare"]["steps"] if "name" in step}
    page = tmp_path / "page.md"
    compared = run_script(steps["Compare the change with its base"]["run"], tmp_path, server)
    variables = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page), "GITHUB_TOKEN": ""}
    reported = run_script(steps["Summary, annotations and comment"]["run"], tmp_path, server, **variables)

    assert compared.returncode == 1, compared.stderr
    assert reported.returncode == 0, reported.stderr
    assert "| `statements <= 1x` | HEAD | **failed** |" in page.read_text()
    assert "::error title=placebench%3A statements <= 1x::HEAD: failed: +200 %25" in reported.stdout
    kept = [each.strip() for each in steps["Keep the report"]["with"]["path"].splitlines()]
    assert [each for each in kept if not (shop / each).is_file()] == []


@pytest.mark.long
def test_the_job_of_gitlab_fails_and_keeps_its_reports(shop: Path, tmp_path: Path, server: Server) -> None:
    """The same comparison; the files that it names as artifacts are there."""
    job = job_of("gitlab")["placebench"]

    def run(lines: Sequence[str], **variables: str) -> "subprocess.CompletedProcess[str]":
        return run_script(
            "\n".join(lines).replace("/tmp/placebench", f"{tmp_path}/placebench"), tmp_path, server, **variables
        )

    compared = run(job["script"], CI_MERGE_REQUEST_DIFF_BASE_SHA="HEAD^2", CI_MERGE_REQUEST_TARGET_BRANCH_SHA="HEAD^1")
    reported = run(job["after_script"], GITLAB_CI="true")
    artifacts = [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]

    assert compared.returncode == 1, compared.stderr
    assert reported.returncode == 0, reported.stderr
    assert [each for each in artifacts if not (shop / each).is_file()] == []


def test_a_file_that_is_there_is_kept(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may have been changed by hand."""
    job_of("github")
    path = shop / ".github" / "workflows" / "placebench.yml"
    path.write_text("mine")

    assert main(["ci", "init", "github", "--source", "placebench"]) == 2
    assert path.read_text() == "mine"
    assert "is not replaced: name another file with --out" in capsys.readouterr().err


def test_a_project_below_the_root_of_its_repository_names_the_file(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No service finds a job in a subfolder; what --out names is written."""
    inner = shop / "services" / "orders"
    inner.mkdir(parents=True)
    for name in ("pyproject.toml", "requirements.txt"):
        (inner / name).write_bytes((shop / name).read_bytes())
    (shop / ".git").mkdir(exist_ok=True)
    monkeypatch.chdir(inner)

    assert main(["ci", "init", "github", "--source", "placebench"]) == 2
    assert f"{shop}/.github/workflows/placebench.yml, and let the commands in it run in services/orders" in (
        capsys.readouterr().err
    )
    assert not (inner / ".github").exists()
    assert main(["ci", "init", "github", "--source", "placebench", "--out", str(shop / "job.yml")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["github", "--gate", "rows == 1"], "rows == 1"),
        (["github", "--source", "it's"], "expected no quotes"),
        ([], "github or gitlab?"),
    ],
)
def test_a_mistake_writes_nothing(
    words: list[str], message: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what was expected."""
    assert main(["ci", "init", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (shop / ".github").exists()


def test_a_folder_without_a_run_is_said_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that did not begin leaves nothing to show: exit code 2."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page.md"))

    assert main(["ci", "report", str(tmp_path)]) == 2
    assert (tmp_path / "page.md").read_text() == "Nothing was compared: the log of the job says why.\n"
