"""A history of a real application: commits counted against a tag, one that does not start, a step, a new reference."""

import json
import sys
from pathlib import Path

import pytest
from git_repository import commit_all, git

from placebench.cli import main
from placebench.history import Failure, History, HistoryEntry
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.long

SHOP = """
import os
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])

def app(environ, start_response):
    with engine.connect() as connection:
        names = [connection.scalar(text("SELECT 'apple'")) for _ in range({statements})]
    body = names[0].encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
PLAN = """
[tool.placebench]
request = "/names"

[tool.placebench.app]
app = "shop:app"
python = "{python}"
env = {{ SQLALCHEMY_DATABASE_URL = "{{database_url}}" }}
"""
COMMITS = {"v1": SHOP.format(statements=2), "broken": "import nothing_of_this_name", "slow": SHOP.format(statements=3)}


def repository(folder: Path) -> Path:
    """A commit for each of COMMITS, tagged."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PLAN.format(python=sys.executable))
    (folder / ".gitignore").write_text("*.html\n*.csv\n")
    for tag, code in COMMITS.items():
        (folder / "shop.py").write_text(code)
        commit_all(folder, f"Make it {tag}", tag=tag)
    return folder


def test_a_history_from_its_first_commit_to_a_new_reference(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Backfill notes the commit that does not start, check fails until the step is blessed, a new tag is linked."""
    shop = repository(tmp_path / "shop")
    monkeypatch.chdir(shop)
    monkeypatch.setattr("placebench.paths.profiles_folder", lambda: tmp_path / "profiles")
    measured = ["-n", "0", "--server", server.url, "--quiet"]

    def history(*words: str) -> tuple[int, str]:
        code = main(["history", *words])
        return code, capsys.readouterr().out

    assert history("backfill", "v1..HEAD", "--reference", "v1", *measured)[0] == 0
    made = History.read(shop / "placebench-history.jsonl").lines
    assert [(type(each), each.commit) for each in made] == [
        (Failure, git(shop, "rev-parse", "broken")),
        (HistoryEntry, git(shop, "rev-parse", "slow")),
    ]
    code, said = history("backfill", "v1..HEAD", *measured)
    assert (code, said.count("\n")) == (0, 1)
    assert said.startswith(f"{made[0].commit[:12]}  not measured: {made[0].reason}")
    assert history("backfill", "broken..HEAD", *measured) == (0, "nothing is missing\n")

    assert history("check", "--metric", "statements")[0] == 1  # a statement more than v1
    assert history("bless", "slow", "--reason", "names are sorted", "--metric", "statements")[0] == 0
    assert history("check", "--metric", "statements")[0] == 0
    (shop / "shop.py").write_text(SHOP.format(statements=4))
    git(shop, "commit", "-aqm", "Four")
    assert history("add", *measured)[0] == 0
    code, said = history("check", "--metric", "statements")
    assert (code, "statements +33 %" in said, "(Four)" in said) == (1, True, True)
    assert history("check")[0] == 1

    assert history("bless", "HEAD", "--reason", "orders have items now", "--metric", "statements")[0] == 0
    assert history("check", "--metric", "statements")[0] == 0
    assert history("check")[0] == 3  # no time was measured
    assert history("add", "--reference", "slow", *measured)[0] == 0
    code, said = history("show", "--metric", "statements", "--json", "--csv", "h.csv")
    series = json.loads(said)["metrics"]["statements"]
    assert [round(each["ratio"], 2) for each in series["points"]] == [0.67, 1.0, 1.33]
    assert [each["accepted"] for each in series["steps"]] == ["names are sorted", "orders have items now"]
    assert "orders have items now" in (shop / "placebench-history.html").read_text()
    assert (shop / "h.csv").read_text().splitlines()[0] == "time,commit,statements"
    assert git(shop, "worktree", "list").count("\n") == 0
