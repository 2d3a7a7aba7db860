"""The GitHub action, by its scripts."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from git_repository import git

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "compare"
pytestmark = pytest.mark.skipif(not ACTION.is_dir(), reason="the action is not beside the tests")


def run_action(folder: Path, **variables: str) -> tuple[int, str, str, str]:
    """Exit code and outputs of compare.sh, the job's page and the log, with one provider tree in *folder*."""
    (folder / "pyproject.toml").write_text("[tool.placebench]\ntrees = 1\n")
    outputs, page = folder / "outputs", folder / "page.md"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(page),
        "RUNNER_TEMP": str(folder),
        **variables,
    }
    ended = subprocess.run(
        ["bash", ACTION / "compare.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    made = outputs.read_text().splitlines()[-2].removeprefix("folder=")
    reported = subprocess.run(
        [sys.executable, "-m", "placebench", "ci", "report", made], env=environment, capture_output=True, text=True
    )
    log = ended.stdout + ended.stderr + reported.stderr
    return ended.returncode, outputs.read_text(), page.read_text(), log


@pytest.mark.long
def test_each_use_in_a_job_has_its_own_folder_and_page(tmp_path: Path) -> None:
    """A line is a gate, and an argument with or without its value. The first use fails by its second gate.

    The second use has a gate that is undecided without replicates: a warning with its reason, and no failure.
    """
    gates = "rows <= 100000\nstatements <= 0\n"
    code, outputs, page, _ = run_action(tmp_path, BASE="noop", HEAD="tuned", GATES=gates, ARGUMENTS="--replicates 0")
    again, more, pages, log = run_action(
        tmp_path, BASE="noop", HEAD="tuned", GATES="cpu_s < 1.05x", ARGUMENTS="--replicates=0"
    )

    assert (code, again) == (1, 0)
    assert "statements <= 0" in page
    first, second = (line for line in more.splitlines() if line.startswith("folder="))
    assert outputs.splitlines() == [first, "exit-code=1"]
    assert first != second
    assert "cpu_s < 1.05x" in pages.removeprefix(page)
    assert re.search(r"^::warning title=placebench::placebench compare: .*cpu_s < 1.05x", log, re.MULTILINE)


def test_the_base_is_what_the_pull_request_was_merged_with(tmp_path: Path) -> None:
    """The event's base.sha is older, once the base has got further commits. Without a merge it is where they parted."""

    def commit(subject: str) -> str:
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
        return git(tmp_path, "rev-parse", "HEAD")

    def compared() -> str:
        event = {"BASE": "", "PULL_REQUEST_BASE": old, "PULL_REQUEST_HEAD": head}
        variables = {**os.environ, **event, "HEAD": "HEAD", "PLACEBENCH": "echo", "RUNNER_TEMP": str(tmp_path)}
        variables["GITHUB_OUTPUT"] = str(tmp_path / "outputs")
        script = ["bash", ACTION / "compare.sh"]
        ended = subprocess.run(script, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
        return ended.stdout.split()[1]

    git(tmp_path, "init", "-q")
    old = commit("The base when the pull request was made")
    git(tmp_path, "checkout", "-q", "-b", "change")
    commit("The change")
    head = commit("More of it")
    without_merge = compared()
    git(tmp_path, "checkout", "-q", "main")
    newest = commit("The newest base")
    git(tmp_path, "merge", "-q", "--no-edit", "change")

    assert (old, newest) == (without_merge, compared())


def test_a_mistake_is_in_the_log(tmp_path: Path) -> None:
    """A revision that does not exist is exit code 2; the page says that nothing was compared."""
    code, outputs, page, log = run_action(tmp_path, BASE="noop", HEAD="no-such-revision")

    assert (code, outputs.splitlines()[-1]) == (2, "exit-code=2")
    assert page == "Nothing was compared: the log of the job says why.\n"
    assert "no-such-revision" in log


def test_the_environment_of_the_application_stays_as_it_is(tmp_path: Path) -> None:
    """placebench gets an environment of its own; the application's Python is what the outputs name.

    pip is a script that notes where it is called, so that nothing is fetched.
    """
    application = tmp_path / "application"
    venv.create(application, with_pip=False, symlinks=True)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {application}/bin/python "$@"\nexit 9\n')
    python.chmod(0o755)
    own = tmp_path / "placebench-environment" / "bin"
    own.mkdir(parents=True)
    (own / "placebench").touch(0o755)
    outputs = tmp_path / "outputs"
    before = sorted(application.rglob("*"))
    environment = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "PYTHON": str(python)}
    environment |= {"GITHUB_OUTPUT": str(outputs), "SOURCE": "nowhere"}
    subprocess.run(["bash", ACTION / "install.sh"], env=environment, check=True)

    assert outputs.read_text().splitlines() == [f"python={application}/bin/python", f"placebench={own}/placebench"]
    assert sorted(application.rglob("*")) == before
