"""`placebench telemetry show`: tables, JSON and a page of any folder of telemetry, and one line for what is none."""

import json
from pathlib import Path

import pandas as pd
import pytest

from placebench.cli import main
from placebench.report.telemetry import full_points

SQL = 's,44a0a97454740470,"SELECT name FROM item WHERE id = ?"'
HEAD = 'h,{"format_version": 1, "boot": "here"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two loads of ten requests per second for three seconds, with a pause of four in between; half is SQL."""
    at = [100 + number / 10 for number in (*range(30), *range(70, 100))]
    client = [f"d,{each},{number},GET,/,200,client,,0.1" for number, each in enumerate(at)]
    server = [f"q,{each},{number},GET,/,200,0.08,0.04,0.04" for number, each in enumerate(at)]
    statements = [f"d,{each},{number},GET,/,200,statement,44a0a97454740470,0.02" for number, each in enumerate(at)]
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / "client-1.csv").write_text("\n".join([HEAD, *client]) + "\n")
    (tmp_path / "telemetry" / "worker-1.csv").write_text("\n".join([HEAD, SQL, *server, *statements]) + "\n")
    return tmp_path / "telemetry"


def test_a_folder_is_shown_as_text_json_and_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pause is in no mean: 10 requests per second, not 6; the page has the charts."""
    assert main(["telemetry", "show", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["telemetry", "show", str(folder)]) == 0
    text = capsys.readouterr().out

    assert document["requests"] == 60
    assert document["steps"] == {"full": 6, "cut": 0, "idle": 4}
    shown = {name: value and round(value, 9) for name, value in document["means"].items()}
    assert shown == {
        "requests_per_s": 10.0,
        "client_s": 0.1,
        "server_s": 0.08,
        "database_share": 0.5,
        "rss_bytes": None,
    }
    assert [row["series"] for row in document["durations"]] == [
        "client",
        "server",
        "framework",
        "handler",
        "statement",
    ]
    assert document["statements"] == {"44a0a97454740470": "SELECT name FROM item WHERE id = ?"}
    assert any(
        line.startswith("statement SELECT name FROM item WHERE id = ? · GET / 200 ") for line in text.splitlines()
    )
    assert "44a0a97454740470" not in text
    assert text.splitlines()[0] == document["headline"]
    assert text.splitlines()[-1] == (folder / "telemetry.html").as_uri()
    page = (folder / "telemetry.html").read_text()
    for title in ("Requests per second", "Client and server time", "Percentiles", "Share of the database"):
        assert f"{title}." in page
    assert "Memory." not in page


def test_a_use_of_less_than_a_step_has_no_empty_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No step is full of requests: one line says so, and neither a table of means nor a heading of charts is left."""
    for path in folder.iterdir():
        lines = path.read_text().splitlines()
        path.write_text("\n".join(each for each in lines if not each.startswith(("d", "q")) or each[2:7] <= "100.4"))
    assert main(["telemetry", "show", str(folder)]) == 0
    page = (folder / "telemetry.html").read_text()

    assert "No step of 1.00 s was full of requests: there are no means per second." in page
    assert "mean over the full steps" not in capsys.readouterr().out
    assert "Over time" not in page


def test_the_chart_of_memory_is_in_mib() -> None:
    """So its axis has round numbers; a step that is not full of requests is no point."""
    frame = pd.DataFrame({"state": ["full", "cut"], "rss_bytes": [50.0 * 2**20, 2.0**20]}, index=[0.0, 1.0])

    assert [(0.0, 50.0), (1.0, None)] == full_points(frame, "rss_bytes")


def test_a_file_of_somebody_else_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither at the default place nor at that of --out; a page of placebench is."""
    (folder / "telemetry.html").write_text("<p>mine</p>")

    assert main(["telemetry", "show", str(folder)]) == 2
    assert main(["telemetry", "show", str(folder), "--out", str(folder)]) == 2
    assert main(["telemetry", "show", str(folder), "--out", str(folder.parent / "page.html")]) == 0
    assert main(["telemetry", "show", str(folder), "--out", str(folder.parent / "page.html")]) == 0
    assert (folder / "telemetry.html").read_text() == "<p>mine</p>"


@pytest.mark.parametrize("kind", ["absent", "empty", "other data", "only figures", "no request", "other times"])
def test_what_holds_no_telemetry_is_said_in_one_line(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No folder, no file, other data, impossible times, and processes that served no request; no page is written."""
    folder = tmp_path / "given"
    if kind != "absent":
        folder.mkdir()
    if kind == "other data":
        (folder / "prices.csv").write_text("item,price\ntea,3\n")
    if kind == "only figures":
        (folder / "worker-1.csv").write_text(f"{HEAD}\nr,100.0,threads,2\n")

    if kind == "no request":
        (folder / "worker-1.csv").write_text(f"{HEAD}\nd,100.0,1,GET,/,200,timed,look up,0.1\n")
    if kind == "other times":
        (folder / "worker-1.csv").write_text(f"{HEAD}\nq,inf,1,GET,/,200,0.1,,\nq,1e300,2,GET,/,200,0.1,,\n")

    assert main(["telemetry", "show", str(folder)]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert len(written.err.splitlines()) == 1
    assert not (folder / "telemetry.html").exists()
