"""Findings as SARIF: rules, places from the repository's root on, and fingerprints that outlive other lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from placebench.profiler import Recording, Statement, write_sarif
from placebench.profiler.analysis.findings import find
from placebench.profiler.model.statement import Caller
from placebench.profiler.output.sarif import sarif_document
from placebench.profiler.output.source_places import relative_file, repository_root

ROOT = Path("/repository")


def recording(line: int = 7, file: str = "/repository/shop/the views.py") -> Recording:
    """The same statement six times from one line."""
    caller = Caller(file, line, "view")
    statement = Statement("SELECT * FROM item", "f", 0.0, execute_s=0.001, caller=caller, outer_caller=caller)
    return Recording("GET /", "full", statements=[statement] * 6, notes=("no plans",))


def run_of(each: Recording) -> dict[str, Any]:
    """The only run of its document."""
    (run,) = sarif_document(each, root=ROOT)["runs"]
    return run


def test_a_finding_is_a_result_at_its_line() -> None:
    """With its rule, its advice, and the file as a URI from the root on."""
    run = run_of(recording())

    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (rule["id"], result["ruleId"], result["ruleIndex"], result["level"]) == ("n-plus-one",) * 2 + (0, "warning")
    assert place == {
        "artifactLocation": {"uri": "shop/the%20views.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 7},
    }
    assert list(run["originalUriBaseIds"]) == ["SRCROOT"]
    assert "Load all at once" in result["message"]["text"]
    assert result["relatedLocations"][0]["physicalLocation"] == place


def test_a_fingerprint_outlives_lines_that_move() -> None:
    """Equal on another line of the same function and in another checkout; another statement has another one."""
    fingerprints = [
        run_of(each)["results"][0]["partialFingerprints"]["placebenchFinding/v1"]
        for each in (recording(), recording(line=99), recording(file="shop/the views.py"), recording(file="/x/y.py"))
    ]

    assert fingerprints[0] == fingerprints[1] == fingerprints[2] != fingerprints[3]


def test_a_finding_without_a_line_is_a_notification() -> None:
    """Code scanning refuses results without a place; a light recording has none, and its notes have none."""
    light = Recording("GET /", "light", statements=[Statement("SELECT 1", "f", 0.0)] * 6, notes=("no plans",))

    run = run_of(light)

    notifications = run["invocations"][0]["toolExecutionNotifications"]
    assert run["results"] == []
    assert [each["level"] for each in notifications] == ["warning", "note"]
    assert notifications[0]["message"]["text"].startswith("n+1: 6 times")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/repository/shop/views.py", "shop/views.py"),
        ("shop/views.py", "shop/views.py"),
        ("/elsewhere/views.py", None),
        ("/repository/.venv/lib/python3.11/site-packages/sqlmodel/session.py", None),
        ("<string>", None),
    ],
)
def test_only_files_of_the_repository_are_relative(file: str, expected: str | None) -> None:
    """What is installed is not in it, wherever the environment is."""
    assert relative_file(file, ROOT) == expected


def test_the_repository_is_found_above(tmp_path: Path) -> None:
    """A worktree has a file .git, and a folder without one is its own root."""
    (tmp_path / "shop").mkdir()
    assert repository_root(tmp_path / "shop") == tmp_path / "shop"
    (tmp_path / ".git").touch()
    assert repository_root(tmp_path / "shop") == tmp_path


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    """JSON, with as many results as findings that have a line."""
    write_sarif(recording(), tmp_path / "r.sarif", root=ROOT)

    document = json.loads((tmp_path / "r.sarif").read_text())
    assert document["version"] == "2.1.0"
    assert len(document["runs"][0]["results"]) == len(find(recording())) == 1
