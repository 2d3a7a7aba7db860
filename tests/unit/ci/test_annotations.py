"""The annotations of a run: what failed, and the lines of the repository below which something became slower."""

import json
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run
from flame_graphs import session_of

from placebench import results
from placebench.ci.annotations import Annotation, annotations_of
from placebench.compare.keep.records import ProfiledReplicate, append_lines
from placebench.errors import RunFolderError

TREE = "/srv/runs/1/sources/2/tree"
SELECT, LIBRARY, FAST = ("SELECT 1", "sql"), ("execute", "sqlalchemy/engine.py"), ("describe", "shop/main.py")
REPLICATES = 8


def frame(name: str, file: str, line: int) -> str:
    return f"{name}\x00{file}\x001\x01l{line}"


@pytest.fixture
def run(tmp_path: Path) -> results.Run:
    """`head` is 10 ms slower in a statement, 1 ms in a library below two lines, 0.1 ms in a function of its own."""
    folder = write_run(tmp_path / "run", FakeRun(("main", "head"), replicates=REPLICATES))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "main.py").touch()
    base = {SELECT: 0.002, LIBRARY: 0.001, FAST: 0.0001}
    head = {SELECT: 0.012, LIBRARY: 0.002, FAST: 0.0002}
    append_lines(
        folder / "profiled.jsonl",
        [
            ProfiledReplicate(
                number,
                variant,
                10,
                [(name, place, seconds * (1 + number / 1000)) for (name, place), seconds in times.items()],
            )
            for number in range(REPLICATES)
            for variant, times in (("main", base), ("head", head))
        ],
    )
    main = f"{TREE}/shop/main.py"
    orders = [frame("orders", main, 24), frame("describe", main, 34)]
    execute = frame("execute", "/lib/sqlalchemy/engine.py", 900)
    stacks = [
        ([*orders, execute, "SELECT 1\x00sql\x000"], 0.010),
        ([orders[0], execute, "SELECT 1\x00sql\x000"], 0.002),
        ([*orders, execute], 0.002),
        ([frame("describe", main, 35)], 0.0002),
    ]
    session = session_of(stacks, sys_path=["", TREE, "/lib"])
    (folder / "profile-head.pyisession").write_text(json.dumps(session.to_json()))
    return results.load(folder)


def test_a_statement_is_annotated_at_the_line_that_ran_it(run: results.Run, tmp_path: Path) -> None:
    """With what is below the same line: the innermost one of the repository, in its folder, by the larger share.

    The function that has 1 % of the largest change is left out.
    """
    (only,) = annotations_of(run, tmp_path, tmp_path)

    assert (only.level, only.file, only.line) == ("warning", "shop/main.py", 34)
    assert only.message.startswith("SELECT 1 +10.0 ms [95 % CI ")
    assert "; execute +1.00 ms [95 % CI " in only.message
    assert only.message.endswith(" per request under the profiler, head against main")


def test_a_file_outside_of_the_repository_has_no_line(run: results.Run, tmp_path: Path) -> None:
    """Its changes are on the page."""
    other = tmp_path / "other"
    other.mkdir()

    assert annotations_of(run, other, other) == []


def test_checks_come_first(run: results.Run, tmp_path: Path) -> None:
    """A failed gate is an error, an undecided one a warning, a passed one nothing."""
    (run.folder / "junit.xml").write_text(
        '<testsuite><testcase classname="placebench" name="same responses"/>'
        '<testcase classname="placebench.head" name="rows &lt;= 1x"><failure message="failed: +50 %"/></testcase>'
        '<testcase classname="placebench.head" name="cpu_s &lt; 1x"><skipped message="inconclusive"/></testcase>'
        "</testsuite>"
    )

    assert annotations_of(run, tmp_path, tmp_path)[:2] == [
        Annotation("error", "rows <= 1x", "head: failed: +50 %"),
        Annotation("warning", "cpu_s < 1x", "head: inconclusive"),
    ]


def test_a_broken_file_of_checks_is_named(run: results.Run, tmp_path: Path) -> None:
    """With what was expected."""
    (run.folder / "junit.xml").write_text("<testsuite>")

    with pytest.raises(RunFolderError, match=r"junit\.xml: expected JUnit XML"):
        annotations_of(run, tmp_path, tmp_path)
