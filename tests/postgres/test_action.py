"""The GitHub action, by its scripts."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "compare"
pytestmark = pytest.mark.skipif(not ACTION.is_dir(), reason="the action is not beside the tests")


def run_action(folder: Path, **variables: str) -> tuple[int, str, str, str]:
    """Exit code, outputs, the job's page and the log of compare.sh, with one provider tree in *folder*."""
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
    return ended.returncode, outputs.read_text(), page.read_text(), ended.stdout + ended.stderr


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
    assert outputs.splitlines() == ["exit-code=1", first]
    assert first != second
    assert "cpu_s < 1.05x" in pages.removeprefix(page)
    assert re.search(r"^::warning title=placebench::placebench compare: .*cpu_s < 1.05x", log, re.MULTILINE)


def test_a_mistake_is_in_the_log(tmp_path: Path) -> None:
    """A revision that does not exist is exit code 2, and there is nothing to show."""
    code, outputs, page, log = run_action(tmp_path, BASE="noop", HEAD="no-such-revision")

    assert (code, outputs) == (2, "exit-code=2\n")
    assert page == "Nothing was compared: the log of the job says why.\n"
    assert "no-such-revision" in log


COMMENTS = """#!/usr/bin/env bash
printf '%s\\n' "$*" >>calls
case "$*" in *PATCH*|*POST*) ;; *) cat known ;; esac
"""


@pytest.mark.parametrize(
    ("known", "sent"),
    [
        ("", "api --silent --method POST repos/o/r/issues/7/comments --field body=@{body}"),
        ("42\n", "api --silent --method PATCH repos/o/r/issues/comments/42 --field body=@{body}"),
    ],
    ids=["made", "updated"],
)
def test_one_comment_is_kept_up_to_date(known: str, sent: str, tmp_path: Path) -> None:
    """The first run writes a comment, a later one changes it; what is sent begins with the mark that it is found by.

    gh is a script that notes its calls: the service behind it is not here.
    """
    (tmp_path / "summary.md").write_text("faster\n")
    (tmp_path / "known").write_text(known)
    (tmp_path / "gh").write_text(COMMENTS)
    (tmp_path / "gh").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "FOLDER": str(tmp_path),
        "COMMENTS": "repos/o/r/issues/7/comments",
        "NAME": "orders",
    }
    subprocess.run(["bash", ACTION / "comment.sh"], cwd=tmp_path, env=environment, check=True)

    assert (tmp_path / "calls").read_text().splitlines()[-1] == sent.format(body=tmp_path / "comment.md")
    assert (tmp_path / "comment.md").read_text() == "<!-- placebench orders -->\nfaster\n"


def test_a_comment_that_may_not_be_written_does_not_fail_the_job(tmp_path: Path) -> None:
    """GitHub refuses the token of a pull request from a fork: a warning says so."""
    (tmp_path / "summary.md").write_text("faster\n")
    (tmp_path / "gh").write_text(
        "#!/bin/sh\necho 'gh: Resource not accessible by integration (HTTP 403)' >&2\nexit 1\n"
    )
    (tmp_path / "gh").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FOLDER": str(tmp_path), "COMMENTS": "x"}
    ended = subprocess.run(["bash", ACTION / "comment.sh"], env=environment, capture_output=True, text=True, check=True)

    assert ended.stdout.startswith(
        "::warning title=placebench::no comment was written: gh: Resource not accessible by integration (HTTP 403); "
    )


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
