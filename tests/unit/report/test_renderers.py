"""A report as text, as a document, and by the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run
from markupsafe import Markup
from reports import document_of, text_of

from placebench import paths, results
from placebench.cli import main
from placebench.compare.keep.records import FailedPart
from placebench.report import build_report, parse_gates, published_document, render_text, write_report
from placebench.report.model import Column, Section, Table
from placebench.report.renderers import align, render_html, render_markdown


def test_a_table_is_align() -> None:
    """Names to the left, figures to the right, nothing behind the last."""
    assert align([("a", "1.5 s"), ("bcd", "12 ms")]) == ["a    1.5 s", "bcd  12 ms"]


def test_the_terminal_shows_the_headline_and_the_steps(tmp_path: Path) -> None:
    """The first line is the headline of the page; then one line for each step."""
    lines = text_of(results.load(write_run(tmp_path / "run", FakeRun(replicates=8)))).splitlines()

    assert lines[0].startswith("tuned is faster than naive: −68.2 % CPU")
    assert [line.split("  ")[0] for line in lines[4:12]] == [
        "variant",
        "naive",
        "+ rows",
        "+ slots",
        "+ summaries_once",
        "+ sets",
        "+ expanding",
        "tuned",
    ]


def test_a_narrow_terminal_shows_less_important_columns_only_where_they_fit(tmp_path: Path) -> None:
    """In 80 characters the tables lack their last optional columns; where there is room they have all."""
    report = build_report(results.load(write_run(tmp_path / "run")))

    narrow, wide = render_text(report, width=80).splitlines(), render_text(report).splitlines()

    table = narrow.index("", 1)
    assert max(map(len, narrow[table:-1])) <= 80 < max(map(len, wide[table:-1]))
    heads = [next(line for line in lines if line.startswith("variant  ")) for lines in (narrow, wide)]
    assert "statements" in heads[0]
    assert [head.endswith("in GC") for head in heads] == [False, True]


def test_the_terminal_shows_gates_that_passed(tmp_path: Path) -> None:
    """Each with what was measured."""
    run = results.load(write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), replicates=8)))

    lines = render_text(build_report(run, parse_gates(["cpu_s < 0.9x", "wall_s < 1.1x"]))).splitlines()

    start = next(number for number, line in enumerate(lines) if line.startswith("gate"))
    assert lines[start].split() == ["gate", "variant", "outcome", "measured"]
    assert [line.split()[:5] for line in lines[start + 1 : start + 3]] == [
        ["cpu_s", "<", "0.9x", "tuned", "passed"],
        ["wall_s", "<", "1.1x", "tuned", "passed"],
    ]


def test_a_report_that_is_made_again_has_the_gates_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`report open` writes page, summary and junit.xml, and prints the document, with the gates in run.json."""
    folder = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), replicates=8))
    replace(results.load(folder).head, gates=["cpu_s < 0.9x", "wall_s < 0.1x"]).save(folder / "run.json")

    assert main(["report", "open", str(folder), "--json"]) == 0

    outcomes = {each["name"]: each["outcome"] for each in json.loads(capsys.readouterr().out)["checks"]}
    page = (folder / "index.html").read_text()
    gates = page[page.index('<table id="gates">') :].partition("</table>")[0]
    assert outcomes == {"same responses": "passed", "cpu_s < 0.9x": "passed", "wall_s < 0.1x": "failed"}
    assert re.findall(r">(cpu_s &lt; 0.9x|wall_s &lt; 0.1x|passed|failed)<", gates) == [
        "cpu_s &lt; 0.9x",
        "passed",
        "wall_s &lt; 0.1x",
        "failed",
    ]
    assert 'name="wall_s &lt; 0.1x"><failure message="failed: ' in (folder / "junit.xml").read_text()
    assert "| `wall_s < 0.1x` | tuned | **failed** |" in (folder / "summary.md").read_text()


def test_the_terminal_prints_no_speed_of_wrong_responses(tmp_path: Path) -> None:
    """Two lines: that they differ, and where."""
    run = FakeRun(equal=False, difference="tuned against naive: candidate 17 differs")

    assert text_of(results.load(write_run(tmp_path / "run", run))).splitlines() == [
        "The variants do not do the same, so no speed is printed.",
        "tuned against naive: candidate 17 differs",
    ]


def test_the_document_has_the_promised_names(tmp_path: Path) -> None:
    """Comparisons of the last variant against the first, primary metric first, and the steps in order."""
    document = document_of(results.load(write_run(tmp_path / "run", FakeRun(replicates=8))))

    assert [(each["variant"], each["metric"], each["verdict"]) for each in document["comparisons"]] == [
        ("tuned", "cpu_s", "faster"),
        ("tuned", "wall_s", "faster"),
    ]
    assert (document["seed"], document["replicates"], document["invalidated"], document["same_responses"]) == (
        1,
        8,
        0,
        True,
    )
    assert document["comparisons"][0]["ratio"] == pytest.approx(0.165 / 0.52, rel=0.03)
    assert document["steps"][0]["counted"]["statements"] == 29
    assert document["steps"][-1]["closed"]["latency"].keys() == {"p50_s", "p90_s", "p95_s", "p99_s"}


def test_parts_that_failed_are_named(tmp_path: Path) -> None:
    """A missing profile and a comparison without replicates, everywhere; one that was made again on the page alone.

    No password of a URL reaches any of them.
    """
    run = results.load(write_run(tmp_path / "run"))
    failed = [
        FailedPart("profile", "tuned", "no response from postgresql://me:secret@db/x"),
        FailedPart("comparison", "", "0 of 6 replicates count"),
        FailedPart("count", "naive", "a worker died: `GET /<a>` did not respond", made_again=True),
    ]
    run = replace(run, blocks=[], head=replace(run.head, failed_parts=failed))
    run.head.save(run.folder / "run.json")

    page, text = write_report(run).read_text(), text_of(run)
    markdown = (run.folder / "summary.md").read_text()

    for said in (page, text, markdown):
        assert "The profile of tuned failed: no response from postgresql://me:" in said
        assert "The comparison failed: 0 of 6 replicates count" in said
        assert "secret" not in said
    assert "The count of naive: a worker died: <code>GET /&lt;a&gt;</code> did not respond" in page
    assert [(each["part"], each["variant"], each["made_again"]) for each in document_of(run)["failed_parts"]] == [
        ("profile", "tuned", False),
        ("comparison", "", False),
        ("count", "naive", True),
    ]
    assert "secret" not in json.dumps(document_of(run))


def test_code_in_a_table_is_code_on_the_page(tmp_path: Path) -> None:
    """In the first column as in the others; tags in it are escaped."""
    columns = (Column("name", lambda row: row[0]), Column("value", lambda row: row[1]))
    table = Table("Table", columns, [("`slots` of <a>", "`sets`")])
    report = build_report(results.load(write_run(tmp_path / "run")))

    page = render_html(replace(report, sections=[Section("Section", [table])]))

    assert '<th scope="row"><code>slots</code> of &lt;a&gt;</th><td><code>sets</code></td>' in page


def test_a_line_break_in_a_label_is_a_space_in_text(tmp_path: Path) -> None:
    """The words before and after it stay apart, on the terminal and in Markdown."""
    table = Table("Table", [Column(Markup("round trips<br>(slope)"), lambda row: row)], ["1"])
    report = replace(build_report(results.load(write_run(tmp_path / "run"))), overview=[table])

    assert "\nround trips (slope)\n" in render_text(report)
    assert "| round trips (slope) |" in render_markdown(report)


def test_replicates_that_were_all_discarded_are_counted(tmp_path: Path) -> None:
    """Six were made and none counts: the document says both, and so does what is published."""
    run = results.load(write_run(tmp_path / "run"))
    stolen = replace(run, blocks=[replace(block, invalid="steal 12 %") for block in run.blocks])

    assert [
        (made["replicates"], made["invalidated"]) for made in (document_of(stolen), published_document(stolen))
    ] == [(0, 6)] * 2


def test_the_document_of_wrong_responses_is_empty_of_speeds(tmp_path: Path) -> None:
    """Programs get no figure that people would not get."""
    document = document_of(results.load(write_run(tmp_path / "run", FakeRun(equal=False))))

    assert (document["same_responses"], document["steps"], document["comparisons"]) == (False, [], [])


def test_the_command_ends_with_the_address_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of `placebench report open RUN` can be opened."""
    folder = write_run(tmp_path / "run")

    assert main(["report", "open", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (folder / "index.html").as_uri()


def test_the_command_speaks_json_alone_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The address goes to stderr then."""
    folder = write_run(tmp_path / "run")

    assert main(["report", "open", str(folder), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["headline"].startswith("tuned is faster")
    assert said.err.splitlines()[-1] == (folder / "index.html").as_uri()


def test_without_a_name_the_newest_run_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`profiles/latest`; the list of runs is made again with it."""
    monkeypatch.setattr(paths, "profiles_folder", lambda: tmp_path)
    folder = write_run(tmp_path / "run")
    (tmp_path / "latest").symlink_to("run")

    assert main(["report", "open"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (folder / "index.html").as_uri()
    assert (tmp_path / "index.html").is_file()


def test_a_missing_run_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was looked for, and what to do."""
    assert main(["report", "open", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_why_server_cpu_was_not_measured_is_reported(tmp_path: Path) -> None:
    """On the page and on the terminal, once."""
    folder = write_run(tmp_path / "run", FakeRun(backend_cpu=False))
    run = results.load(folder)
    replace(run.head, manifest={"server_cpu": "the database is on another machine"}).save(folder / "run.json")
    said = "Server CPU was not measured: the database is on another machine."

    assert text_of(results.load(folder)).count(said) == 1
    assert write_report(folder).read_text().count(said) == 1
    assert said not in text_of(run)
