"""The GitHub action, by its scripts."""

import os
import subprocess
import sys
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


def test_a_gate_that_fails_is_on_the_job_s_page(tmp_path: Path) -> None:
    """Each line is a gate; the second one fails the job, and the page has the summary."""
    code, outputs, page, _ = run_action(
        tmp_path, BASE="noop", HEAD="tuned", GATES="rows <= 100000\nstatements <= 0\n", ARGUMENTS="--replicates=0"
    )

    assert code == 1
    assert outputs == f"exit-code=1\nfolder={tmp_path / 'placebench-compare'}\n"
    assert "statements <= 0" in page


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
    }
    subprocess.run(["bash", ACTION / "comment.sh"], cwd=tmp_path, env=environment, check=True)

    assert (tmp_path / "calls").read_text().splitlines()[-1] == sent.format(body=tmp_path / "comment.md")
    assert (tmp_path / "comment.md").read_text() == "<!-- placebench compare -->\nfaster\n"
