"""`placebench compare --plan` from the command line, with a file of one's own."""

import json
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.runtime.postgres import Server

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("without_profiles")]

APPS = Path(__file__).parents[1] / "processes" / "compare"
FILE = f"""
request = "/asleep?sleep=0.005"
trees = 3
seed = 5
rounds = 1
[variants.short]
app = "small_app:application"
path = "{APPS}"
[variants.long]
app = "small_app:application"
path = "{APPS}"
"""


def compare(server: Server, folder: Path, *options: str) -> int:
    """The exit code of a comparison of two variants that are the same, on as little data as there is."""
    path = folder.parent / "mine.toml"
    path.write_text(FILE)
    return main(["compare", "--plan", str(path), "--server", server.url, "--out", str(folder), *options])


def test_the_results_are_printed_and_kept(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each change with its effect and the decision; the page is the last line."""
    code = compare(server, tmp_path / "run", "--replicates", "6")
    printed = capsys.readouterr().out
    summary = (tmp_path / "run" / "summary.md").read_text()

    assert code == 0
    assert "| change | effect on server CPU | verdict | decision | why |" in summary
    assert "\n| long | " in summary
    assert "long" in printed
    assert printed.splitlines()[-1] == (tmp_path / "run" / "index.html").as_uri()


def test_what_the_command_line_says_goes_over_the_file(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed, trees and topology; too few replicates are exit code 3, and what there is has its results all the same."""
    options = ("--replicates", "1", "--seed", "7", "--trees", "2", "--topology", "flat-perfload", "--json")
    code = compare(server, tmp_path / "run", *options)
    printed = capsys.readouterr()
    document = json.loads(printed.out)

    assert code == 3
    assert printed.err.splitlines()[-1] == "placebench compare: inconclusive: 1 replicate, 6 needed"
    assert (document["seed"], document["trees"], document["topology"]) == (7, 2, "flat-perfload")
    assert [(each["name"], each["decision"]) for each in document["results"]] == [("long", "undecided")]
