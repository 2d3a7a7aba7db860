"""What `history` refuses, in one line with exit code 2 or 3, before anything is measured."""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from git_repository import commit_all, git
from msgspec.json import decode
from msgspec.structs import replace

from placebench.cli import main
from placebench.commands.history import _emit_entries
from placebench.commands.options import OutputOptions
from placebench.history import HistoryEntry, Measured
from placebench.history.commits import contents_of

pytestmark = pytest.mark.processes

COMMIT = "0" * 40


def entry(metrics: str = "{}", commit: str = COMMIT) -> str:
    """A line of a history."""
    return (
        f'{{"kind":"entry","commit":"{commit}","subject":"x","reference":"{COMMIT}","reference_name":"v1",'
        f'"measured_at":"","request":"/","metrics":{metrics},"machine":{{}},"versions":{{}}}}\n'
    )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a repository with one commit and a description of its application."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.placebench.app]\napp = "shop:app"\n')
    commit_all(tmp_path, "One")
    return tmp_path


def commits(folder: Path) -> list[str]:
    """Those of HEAD, the oldest first."""
    return git(folder, "rev-list", "--reverse", "HEAD").split()


def measured(ratio: float) -> str:
    """A metric with an interval of ±1 %."""
    return f'{{"ratio":{ratio},"low":{ratio * 0.99},"high":{ratio * 1.01},"replicates":12}}'


def write_history(shop: Path, ratios: Sequence[float]) -> Path:
    """A commit for each ratio of CPU, after the first one, and the history of them."""
    for number in range(len(ratios)):
        git(shop, "commit", "-q", "--allow-empty", "-m", f"Change {number}")
    path = shop / "placebench-history.jsonl"
    lines = (
        entry(f'{{"cpu_s":{measured(ratio)}}}', each) for each, ratio in zip(commits(shop)[1:], ratios, strict=True)
    )
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["add"], 2, "placebench-history.jsonl has no reference yet: pin one with --reference"),
        (["add", "--reference", "v9"], 2, "no revision 'v9' in "),
        (["add", "--reference", "HEAD"], 2, "is the reference itself: name another revision"),
        (["backfill", "v1..HEAD", "--reference", "HEAD"], 2, "expected a branch, a tag or a commit"),
        (["check"], 2, "no history placebench-history.jsonl: "),
        (["show"], 2, "no history placebench-history.jsonl: "),
        (["check", "--metric", "latency"], 2, "argument --metric: there is no 'latency'"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what was seen and what to do; no history is begun."""
    assert code == main(["history", *arguments])

    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
    assert not Path("placebench-history.jsonl").exists()


def test_a_history_needs_an_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside a project that describes one."""
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["history", "add", "--reference", "v1"])

    assert "no table app in [tool.placebench] of ./pyproject.toml" in capsys.readouterr().err


def test_a_check_of_nothing_is_inconclusive(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry without an interval of the metric is not green."""
    (shop / "placebench-history.jsonl").write_text(entry(commit=commits(shop)[0]))

    assert 3 == main(["history", "check"])

    assert "no commit has an interval of cpu_s" in capsys.readouterr().err


def test_one_commit_without_its_reference_is_inconclusive(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A step needs two: exit code 3 says so, and not that there is no regression."""
    write_history(shop, [3.0])

    assert main(["history", "check", "--metric", "cpu_s"]) == 3
    assert "only one commit has an interval of cpu_s: a step needs two" in capsys.readouterr().err


def test_two_branches_merge_their_lines(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With merge=union, and although an editor took the last line end: both acceptances are in the file."""
    path = write_history(shop, [1.0] * 8 + [2.0] * 8)
    (shop / ".gitattributes").write_text(f"{path.name} merge=union\n")
    path.write_text(path.read_text().rstrip("\n"))
    git(shop, "add", ".")
    git(shop, "commit", "-qm", "A history")
    step = commits(shop)[9]
    for branch in ("one", "two"):
        git(shop, "checkout", "-q", "-b", branch, "HEAD" if branch == "one" else "one~1")
        assert main(["history", "bless", step, "--reason", branch, "--metric", "cpu_s"]) == 0
        git(shop, "commit", "-qam", branch)
    git(shop, "merge", "-q", "one", "-m", "both")
    reasons = [json.loads(line).get("reason") for line in path.read_text().splitlines()]

    assert reasons == [*[None] * 16, "two", "one"]
    assert main(["history", "check", "--metric", "cpu_s"]) == 0


def test_a_commit_without_a_step_is_not_blessed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the steps that there are."""
    before = entry('{"cpu_s":{"ratio":1.0,"low":0.99,"high":1.01,"replicates":12}}')
    (shop / "placebench-history.jsonl").write_text(before)

    assert 2 == main(["history", "bless", "HEAD", "--reason", "why not"])

    assert "brings no step; the steps are: none" in capsys.readouterr().err
    assert (shop / "placebench-history.jsonl").read_text() == before


RISEN = [1.0] * 6 + [1.5] * 6
"""With a step between the sixth commit and the seventh."""
CHECK = ["history", "check", "--metric", "cpu_s"]


def test_a_shallow_clone_is_not_green(
    shop: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the commits before the step are missing, the line says how to get them; the whole clone finds the step.

    The headline and the table of `show` have the outcome of `check`.
    """
    history = write_history(shop, RISEN).read_text()
    for depth, code, outcome, verdict in (("5", 2, "inconclusive", "No verdict"), ("100", 1, "failed", "1 regression")):
        clone = tmp_path_factory.mktemp("clone")
        git(clone, "clone", "-q", "--depth", depth, f"file://{shop}", ".")
        (clone / "placebench-history.jsonl").write_text(history)
        monkeypatch.chdir(clone)

        assert code == main(CHECK)
        assert ("`git fetch --unshallow`" in capsys.readouterr().err) == (code == 2)
        assert 0 == main(["history", "show", "--metric", "cpu_s"])
        shown = capsys.readouterr().out
        assert [verdict] == re.findall(r"^(.+) in \d+ commits against", shown, re.MULTILINE)
        assert [outcome] == re.findall(r"no regression of server CPU +cpu_s +(\w+)", shown)


def test_commits_that_a_rebase_replaced_are_named_and_left_out(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With none left the check decides nothing, and says what to do; with others it decides by these."""
    path = write_history(shop, RISEN)
    replaced = commits(shop)[1:]
    git(shop, "reset", "-q", "--hard", commits(shop)[0])

    assert 3 == main(CHECK)
    assert "no commit in the history of HEAD has an interval of cpu_s: measure its commits" in capsys.readouterr().err

    before = path.read_text()
    for ratios, code, verdict in (([1.0] * 12, 0, "No regression"), (RISEN, 1, "1 regression")):
        git(shop, "reset", "-q", "--hard", replaced[0] + "^")
        git(shop, "commit", "-q", "--amend", "-m", verdict)
        after = write_history(shop, ratios).read_text()
        path.write_text(before + after)

        assert code == main([*CHECK, "--json"])
        document = json.loads(capsys.readouterr().out)["metrics"]["cpu_s"]
        assert (replaced, 12) == (document["left_out"], len(document["points"]))
        assert code == main(CHECK)
        said = capsys.readouterr().out
        assert f"{verdict} in 12 commits against reference v1." in said
        assert f"12 measured commits are left out, for the history of HEAD does not have {replaced[0][:12]} (x)" in said
        assert "and 7 more, as after a rebase or a squash" in said


def test_measurements_survive_a_rebase_that_leaves_the_files(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each commit has a file of its own; what was accepted stays so, and the files of the history do not count."""
    for number in range(12):
        (shop / f"file-{number}.py").write_text("")
        git(shop, "add", ".")
        git(shop, "commit", "-qm", f"Change {number}")
    path = shop / "placebench-history.jsonl"
    old = commits(shop)
    contents = contents_of(shop, old, without=path)
    lines = [
        entry(f'{{"cpu_s":{measured(ratio)}}}', each).replace("}\n", f',"content":"{contents[each]}"}}\n')
        for each, ratio in zip(old[1:], RISEN, strict=True)
    ]
    path.write_text("".join(lines))
    assert 0 == main(["history", "bless", old[7], "--reason", "wanted", "--metric", "cpu_s"])
    git(shop, "add", ".")
    git(shop, "commit", "-qm", "The history")
    git(shop, "rebase", "-q", "--root", "--exec", "git commit -q --amend --allow-empty -m other")
    capsys.readouterr()

    assert 0 == main([*CHECK, "--json"])
    document = json.loads(capsys.readouterr().out)["metrics"]["cpu_s"]
    assert not set(old) & set(commits(shop))
    assert (commits(shop)[1:13], []) == ([each["commit"] for each in document["points"]], document["left_out"])
    assert ["wanted"] == [each["accepted"] for each in document["steps"]]


def test_a_squash_has_the_measurement_of_the_branch(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The squashed commit has the files of the last measured one, and the history, which that did not have."""
    path = write_history(shop, [1.0] * 4)
    git(shop, "checkout", "-q", "-b", "branch")
    (shop / "slow.py").write_text("")
    git(shop, "add", "slow.py")
    git(shop, "commit", "-qm", "Slower")
    head = commits(shop)[-1]
    content = contents_of(shop, [head], without=path)[head]
    line = entry(f'{{"cpu_s":{measured(1.5)}}}', head).replace("}\n", f',"content":"{content}"}}\n')
    path.write_text(path.read_text() + line)
    git(shop, "add", ".")
    git(shop, "commit", "-qm", "Measure it")
    git(shop, "checkout", "-q", "-")
    git(shop, "merge", "-q", "--squash", "branch")
    git(shop, "commit", "-qm", "Squashed")

    assert 1 == main([*CHECK, "--json"])
    document = json.loads(capsys.readouterr().out)["metrics"]["cpu_s"]
    assert (commits(shop)[-1], []) == (document["steps"][0]["until"], document["left_out"])


@pytest.mark.parametrize(("main_line", "branch", "code"), [(1.5, 1.0, 1), (0.5, 1.0, 3), (1.0, 1.5, 3), (1.0, 1.0, 3)])
def test_a_merged_branch_neither_hides_nor_makes_a_regression(
    shop: Path, capsys: pytest.CaptureFixture[str], main_line: float, branch: float, code: int
) -> None:
    """What was measured on a branch did not contain the other one's change; a measurement of the merge has both."""
    path = write_history(shop, [1.0] * 8)
    git(shop, "commit", "-q", "--allow-empty", "-m", "On the main line")
    git(shop, "checkout", "-q", "-b", "branch", "HEAD~1")
    git(shop, "commit", "-q", "--allow-empty", "-m", "On the branch")
    on_branch = git(shop, "rev-parse", "branch").strip()
    git(shop, "checkout", "-q", "-")
    on_main = commits(shop)[-1]
    git(shop, "merge", "-q", "branch", "-m", "Both")
    for commit, ratio in ((on_main, main_line), (on_branch, branch)):
        path.write_text(path.read_text() + entry(f'{{"cpu_s":{measured(ratio)}}}', commit))

    assert code == main(CHECK)
    said = capsys.readouterr()
    assert f"a branch that was merged beside the others has {on_branch[:12]} (x)" in said.out
    assert (code == 3) == (f"no measured commit contains both {on_branch[:12]} (x) and {on_main[:12]}" in said.err)

    merged = main_line * branch
    path.write_text(path.read_text() + entry(f'{{"cpu_s":{measured(merged)}}}', git(shop, "rev-parse", "HEAD").strip()))
    assert (merged > 1) == main(CHECK)
    assert ("1 regression" in capsys.readouterr().out) == (merged > 1)


def test_a_regression_of_one_metric_fails_where_another_was_not_measured(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed check takes precedence over an undecided one."""
    write_history(shop, RISEN)

    assert 3 == main(["history", "check", "--metric", "statements"])
    assert "no commit has a count of statements" in capsys.readouterr().err
    assert 1 == main(["history", "check"])


def test_a_step_is_accepted_from_another_folder(
    shop: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision is one of the repository that the history lies in."""
    path = write_history(shop, RISEN)
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "Other")
    monkeypatch.chdir(other)

    assert 1 == main([*CHECK, "--file", str(path)])
    assert 0 == main(["history", "bless", "HEAD~5", "--reason", "wanted", "--metric", "cpu_s", "--file", str(path)])
    assert 0 == main([*CHECK, "--file", str(path)])


def test_the_csv_has_every_commit_that_any_metric_has(shop: Path) -> None:
    """In the order of the commits, also where the first metric was not measured."""
    path = write_history(shop, [1.0, 1.0, 1.0])
    first, *_ = named = commits(shop)[1:]
    lines = path.read_text().splitlines(keepends=True)
    lines[1] = entry(f'{{"statements":{measured(2.0)}}}', named[1])
    path.write_text("".join(lines))

    assert 0 == main(["history", "show", "--csv", "series.csv"])

    with Path("series.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["time", "commit", "cpu_s", "statements"]
    assert [(row[1], bool(row[2]), bool(row[3])) for row in rows[1:]] == [
        (first, True, False),
        (named[1], False, True),
        (named[2], True, False),
    ]


@pytest.mark.parametrize(
    ("metrics", "effect"),
    [
        ({"statements": Measured(1.0, baseline_value=3.0, variant_value=3.0)}, "no change in statements"),
        ({"statements": Measured(1.5, baseline_value=2.0, variant_value=3.0)}, "+50 % statements"),
        ({"statements": Measured(None, baseline_value=0.0, variant_value=3.0)}, "0 → 3 statements"),
        ({"statements": Measured(None, baseline_value=0.0, variant_value=0.0)}, "no change in statements"),
        ({}, "neither CPU nor statements measured"),
    ],
)
def test_an_entry_without_times_is_shown_by_its_statements(
    metrics: dict[str, Measured], effect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No change is not a change of +0 %, and from 0 there is no percentage."""
    _emit_entries(OutputOptions(), [replace(decode(entry(), type=HistoryEntry), metrics=metrics)])

    assert f"{COMMIT[:12]}  {effect} against v1  x\n" == capsys.readouterr().out
