"""Reading telemetry: every whole line, and a count of the others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.errors import RunFolderError
from placebench.telemetry import load

WriteFile = Callable[..., Path]
REQUEST = "q,100.500000,7,GET,/orders/<id>,200,0.3000000,0.1000000,0.1500000"
CLIENT = "d,100.400000,7,GET,/orders/<id>,200,client,,0.5000000"
FIGURE = "r,100.100000,rss_bytes,5"


def test_a_request_is_three_durations(write_file: WriteFile, tmp_path: Path) -> None:
    """server, framework and handler share their request, path and status."""
    write_file("worker-1-a.csv", [REQUEST, FIGURE])
    telemetry = load(tmp_path)

    columns = ["series", "request", "verb", "path", "status", "duration_s"]
    assert [tuple(row) for row in telemetry.durations[columns].to_numpy()] == [
        ("server", 7, "GET", "/orders/<id>", "200", 0.3),
        ("framework", 7, "GET", "/orders/<id>", "200", 0.1),
        ("handler", 7, "GET", "/orders/<id>", "200", 0.15),
    ]
    assert telemetry.runtime["value"].tolist() == [5.0]


def test_a_file_cut_anywhere_gives_its_whole_lines(write_file: WriteFile, tmp_path: Path) -> None:
    """At every sixth byte: lines that end before the cut are read, and where it is in a line, one is torn."""
    path = write_file("worker-1-a.csv", [REQUEST, CLIENT, FIGURE])
    content = path.read_bytes()
    begins = content.index(b"\n") + 1

    for cut in range(begins, len(content), 6):
        path.write_bytes(content[:cut])
        file = load(tmp_path).files[0]
        whole = content[begins:cut].count(b"\n")
        in_a_line = content[cut - 1 : cut] != b"\n"
        assert (whole, int(in_a_line)) == (file.lines, file.truncated), cut


def test_texts_of_statements_are_read_by_their_fingerprints(write_file: WriteFile, tmp_path: Path) -> None:
    """Commas, quotes and other letters stay, a lone surrogate does not; lines that no process writes are counted."""
    good = ['s,0a,"SELECT a, \\"b\\" FROM \\u00e9"', 's,0b,"\\ud800"']
    write_file("worker-1-a.csv", [REQUEST, *good, 's,0c,"cut', "s,0d,7", 's,../x,"y"'])
    telemetry = load(tmp_path)

    assert {"0a": 'SELECT a, "b" FROM é', "0b": "?"} == telemetry.statements
    assert (3, 3) == (telemetry.files[0].lines, telemetry.truncated)


def test_a_folder_that_cannot_be_read_hides_no_file(write_file: WriteFile, tmp_path: Path) -> None:
    """Folders in folders, until their path is too long for the system."""
    write_file("worker-1-a.csv", [REQUEST])
    name, folder = "f" * 255, os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(name, dir_fd=folder)
        outer, folder = folder, os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(outer)
    os.close(folder)

    assert 1 == len(load(tmp_path).files)


def test_a_file_without_its_beginning_is_read(write_file: WriteFile, tmp_path: Path) -> None:
    """The head and half a line are gone: the rest of that line is counted, all others are read."""
    path = write_file("worker-1-a.csv", [REQUEST, CLIENT, FIGURE])
    path.write_bytes(path.read_bytes()[60:])
    file = load(tmp_path).files[0]

    assert (file.lines, file.truncated, file.head) == (2, 1, {})


def test_damage_in_the_middle_costs_its_own_lines(write_file: WriteFile, tmp_path: Path) -> None:
    """Zeros of a crashed machine, a number that is none, a field too few: three torn lines among whole ones."""
    write_file("worker-1-a.csv", [REQUEST, "\0\0\0", REQUEST.replace("100.5", "100.x"), "r,1.0,rss_bytes", CLIENT])
    write_file("worker-2-a.csv", [REQUEST.replace(",7,", ",8,")])
    telemetry = load(tmp_path)

    assert [(file.lines, file.truncated) for file in telemetry.files] == [(2, 3), (1, 0)]
    assert telemetry.truncated == 3
    assert sorted(telemetry.durations["request"]) == [7, 7, 7, 7, 8, 8, 8]


def test_each_part_is_a_folder(write_file: WriteFile, tmp_path: Path) -> None:
    """A run keeps each pass apart, and one can be looked at by itself."""
    write_file("worker-1-a.csv", [REQUEST], folder="naive-closed")
    write_file("worker-2-a.csv", [REQUEST], folder="tuned-closed")
    telemetry = load(tmp_path)

    assert sorted(set(telemetry.durations["part"])) == ["naive-closed", "tuned-closed"]
    assert len(telemetry.part("tuned-closed").durations) == 3


def test_the_summary_has_the_published_figures(write_file: WriteFile, tmp_path: Path) -> None:
    """Count, mean, std, min, quartiles, 90 %, 95 %, 99 %, max of eleven requests of 0 to 10 s."""
    write_file("client-1-a.csv", [f"d,{100 + n},{n},GET,/,200,client,,{n}.0" for n in range(11)])
    summary = load(tmp_path).summary()

    assert list(summary.columns) == ["count", "mean", "std", "min", "25%", "50%", "75%", "90%", "95%", "99%", "max"]
    row = summary.loc[("client", "", "GET", "/", "200")]
    assert row.drop("std").tolist() == [11, 5.0, 0.0, 2.5, 5.0, 7.5, 9.0, 9.5, 9.9, 10.0]
    assert round(row["std"], 6) == 3.316625


def test_what_is_not_there_or_newer_is_said_in_one_line(write_file: WriteFile, tmp_path: Path) -> None:
    """A folder without telemetry, and a file of a format that comes after ours."""
    with pytest.raises(RunFolderError, match="no telemetry in"):
        load(tmp_path)
    write_file("worker-1-a.csv", []).write_text('h,{"format_version": 2}\n')
    with pytest.raises(RunFolderError, match=r"is of format 2, this placebench reads 1"):
        load(tmp_path)
