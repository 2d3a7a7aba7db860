"""Small programs: each must have its findings and no others, and the published table is of these results."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy_version import since_2_1

from placebench.profiler.analysis.findings import DESCRIPTIONS
from placebench.runtime.postgres import Server

pytest.importorskip("django")
pytestmark = since_2_1
TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(server: Server) -> Iterator[list[dict[str, Any]]]:
    """The programs with what must be and what was reported; they run in a process of their own."""
    server.create_database("finding_programs")
    url = make_url(server.admin_url("finding_programs")).set(drivername="postgresql")
    child = subprocess.run(
        [sys.executable, "-m", "finding_programs", "placebench", "--url", url.render_as_string(hide_password=False)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(TOP / "tests" / "fakes"), os.environ.get("PYTHONPATH", ""))),
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert child.returncode == 0, child.stderr
    yield json.loads(child.stdout)
    server.drop_database("finding_programs")


def test_each_program_has_its_findings_and_no_others(results: list[dict[str, Any]]) -> None:
    """No finding is missed, and none is false."""
    assert [each for each in results if each["expected"] != each["reported"]] == []


def test_each_finding_has_a_program_with_it_and_three_without(results: list[dict[str, Any]]) -> None:
    """For every kind of finding that there is."""
    found = Counter(each["finding"] for each in results if each["finding"] in each["expected"])
    absent = Counter(each["finding"] for each in results if each["finding"] not in each["expected"])

    assert {kind: (min(found[kind], 1), min(absent[kind], 3)) for kind in DESCRIPTIONS} == dict.fromkeys(
        DESCRIPTIONS, (1, 3)
    )
    assert len({each["name"] for each in results}) == len(results) > 100


def test_the_published_results_are_these(results: list[dict[str, Any]]) -> None:
    """Of the same programs, whose expectations have not changed since."""
    published = json.loads((TOP / "docs" / "results" / "findings.json").read_text(encoding="utf-8"))["programs"]
    parts = ("name", "stack", "finding", "expected")

    assert [[each[part] for part in parts] for each in results] == [
        [each[part] for part in parts] for each in published
    ]
    assert [each["reported"] for each in results] == [each["reported"]["placebench"] for each in published]
