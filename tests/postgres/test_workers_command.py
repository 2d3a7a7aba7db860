"""`placebench lab study workers` on a real PostgreSQL and real uWSGIs: the same responses of every mix."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.lab.studies.workers import default_mixes
from placebench.runtime.postgres import Server


@pytest.mark.long
def test_every_mix_sends_the_same_responses_and_its_memory_is_measured(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    documented: Callable[[str], set[str]],
) -> None:
    """Two processes of the query and of a state of 20 000 records, read whole: pages that were shared are lost."""
    monkeypatch.setenv("PLACEBENCH_STATE_RECORDS", "20000")
    folder, small = tmp_path / "run", ["--trees", "2", "--replicates", "1", "--json", "--server", server.url]

    options = ["--mixes", "2x1", "--workloads", "query,state", "--requests", "60", "--out", str(folder)]
    assert 0 == main(["lab", "study", "workers", *small, *options])
    query, state = json.loads(capsys.readouterr().out)["rows"]

    assert [("query", 2, 1, 60), ("state", 2, 1, 60)] == [
        (row["workload"], row["processes"], row["threads"], row["requests"]) for row in (query, state)
    ]
    assert documented("workers") <= set(query)
    for row in (query, state):
        assert row["rss_bytes"] > row["pss_bytes"] > row["uss_bytes"] > 0
        assert row["cpu_s"] > 0
    assert state["unshared_bytes"] > 1 << 20
    assert 5 == len(results.load(folder).measurements[0].values["memory"][0])
    assert "Memory un-shared by copy-on-write" in (folder / "index.html").read_text()


@pytest.mark.long
def test_event_loops_send_the_responses_that_threads_send(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """uWSGI with two threads, uvicorn and granian with two tasks: one set of responses, and a row for each."""
    small = ["--trees", "2", "--replicates", "1", "--json", "--server", server.url, "--out", str(tmp_path / "run")]
    mixes = ["--mixes", "1x2,1x2@uvicorn,1x2@granian", "--workloads", "query", "--requests", "4"]

    assert 0 == main(["lab", "study", "workers", *small, *mixes])

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [("uwsgi", "1 x 2"), ("uvicorn", "1 x 2 uvicorn"), ("granian", "1 x 2 granian")] == [
        (row["server"], row["mix"]) for row in rows
    ]
    assert all(row["cpu_s"] > 0 and row["pss_bytes"] > 0 and row["requests"] == 4 for row in rows)


@pytest.mark.long
def test_the_cpu_of_programs_that_threads_and_event_loops_start_is_counted(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `cat` that computes before it prints: its time is in the row, though it varies by half on a busy machine."""
    program = tmp_path / "cat"
    program.write_text('#!/bin/sh\ni=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; exec /bin/cat "$@"\n')
    program.chmod(0o755)
    begun_s = os.times().children_user
    subprocess.run([program, "/dev/null"], check=True)
    one_s = os.times().children_user - begun_s
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    small = ["--trees", "2", "--replicates", "1", "--json", "--server", server.url, "--out", str(tmp_path / "run")]
    mixes = ["--mixes", "1x2,1x2@uvicorn", "--workloads", "subprocess", "--requests", "6", "--users", "2"]

    assert 0 == main(["lab", "study", "workers", *small, *mixes])

    threads, event_loop = json.loads(capsys.readouterr().out)["rows"]
    assert threads["cpu_s_per_request"] > 0.3 * one_s < event_loop["cpu_s_per_request"]


def test_the_default_mixes_fit_the_machine() -> None:
    """Two cores: one worker, threads, processes and both, up to twice the cores; never less than two of a kind."""
    assert ((1, 1), (1, 2), (1, 4), (2, 1), (4, 1), (2, 2)) == default_mixes(2, quick=False)
    assert ((1, 4), (4, 1), (2, 2)) == default_mixes(1, quick=True)
    assert (1, 16) in default_mixes(64, quick=False)
