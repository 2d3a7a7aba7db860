"""`placebench report`: the runs that were made."""

import json
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run
from fake_survey import write_search

from placebench.cli import main


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a run and a search for a capacity."""
    write_run(tmp_path / "one", FakeRun(variants=("naive", "tuned"), requests=20, replicates=6))
    write_search(tmp_path / "search")
    return tmp_path


def test_a_run_is_shown_as_text_json_and_markdown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One headline in all of them."""
    run = str(runs / "one")
    codes = [main(["report", "open", run]), main(["report", "open", run, "--json"])]
    out = capsys.readouterr().out
    text, document = out[: out.index("{\n")], json.loads(out[out.index("{\n") :])
    codes.append(main(["report", "open", run, "--markdown"]))
    markdown = capsys.readouterr().out

    assert codes == [0, 0, 0]
    assert document["headline"] in text
    assert document["headline"] in markdown
    assert text.splitlines()[-1] == (runs / "one" / "index.html").as_uri()


def test_a_search_is_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the same three formats."""
    search = str(runs / "search")
    codes = [main(["report", "open", search, *options]) for options in ([], ["--json"], ["--markdown"])]

    assert codes == [0, 0, 0]
    assert 3 == capsys.readouterr().out.count("http://127.0.0.1:8000 ")


def test_runs_are_listed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Name, state and headline, with the page that lists them; an empty folder has none, and one that is not there."""
    (runs / "empty").mkdir()
    codes = [main(["report", "list", str(runs)]), main(["report", "list", str(runs), "--json"])]
    out = capsys.readouterr().out
    *lines, address = out[: out.index("{\n")].splitlines()
    listed = json.loads(out[out.index("{\n") :])["runs"]
    codes += [main(["report", "list", str(runs / "empty")]), main(["report", "list", str(runs / "none")])]

    assert codes == [0, 0, 0, 2]
    assert {"one", "search"} == {line.split()[0] for line in lines} == {each["name"] for each in listed}
    assert address == (runs / "index.html").as_uri()
    assert "no runs yet" in capsys.readouterr().out


def test_two_runs_side_by_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table and as JSON."""
    run = str(runs / "one")
    codes = [main(["report", "diff", run, run]), main(["report", "diff", run, run, "--json"])]
    out = capsys.readouterr().out

    assert codes == [0, 0]
    assert json.loads(out[out.index("{\n") :])


def test_figures_are_exported(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To standard output and into a file, of a run and of a search."""
    file = runs / "figures.json"
    codes = [
        main(["report", "export", str(runs / "one")]),
        main(["report", "export", str(runs / "one"), "-o", str(file)]),
    ]
    out, err = capsys.readouterr()
    codes.append(main(["report", "export", str(runs / "search")]))

    assert codes == [0, 0, 0]
    assert json.loads(out) == json.loads(file.read_text())
    assert str(file) in err
    assert "headline" in json.loads(capsys.readouterr().out)
