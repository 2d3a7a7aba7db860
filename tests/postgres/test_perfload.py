"""The whole story of perfload, small: a real PostgreSQL, real uWSGI, real locust."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import psutil
import pytest
from descendants import descendants
from reports import document_of, text_of
from sqlalchemy import NullPool, create_engine, text

from placebench import results
from placebench.compare.keep.run_folder import Say, claim_folder, discard_message
from placebench.compare.what.validity import LoadRules
from placebench.errors import GateFailedError, ServerError, UndecidedError
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.perfload.run import PerfloadRun, PerfloadSettings
from placebench.report import write_report
from placebench.runtime.postgres import Server

# Whole runs of some thirteen parts, each of which starts its servers.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SMALL = PerfloadSettings(
    variants=("naive", "tuned"),
    processes=1,
    threads=2,
    users=2,
    closed_s=0.5,
    open_s=0.5,
    counted_requests=2,
    profiled_requests=4,
    replicates=2,
    rounds=1,
    block_s=0.02,
    telemetry=True,
    load_rules=LoadRules(late_at_most=1.0, client_cpu_at_most=100.0),  # tests share their machine
)


PASSES = replace(SMALL, replicates=0, telemetry=False)
"""Without the comparison."""
STAND_IN = Path(__file__).parents[1] / "fakes" / "stand_in"


def make(
    server: Server,
    folder: Path,
    say: Say = discard_message,
    settings: PerfloadSettings = SMALL,
    *,
    note: Say = discard_message,
) -> None:
    """A run on two nested trees: four candidates, fourteen providers."""
    topology = find_topology("nested-perfload", trees=2, seed=1)
    PerfloadRun(topology, settings, claim_folder(folder), server).run(say, note)


@pytest.fixture(scope="module")
def finished(server: Server, tmp_path_factory: pytest.TempPathFactory) -> results.Run:
    """A run from beginning to end, with what stands in for the real Placement."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    said: list[str] = []
    settings = replace(SMALL, replicates=1).with_placement(sys.executable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(STAND_IN), prepend=os.pathsep)
        make(server, folder, said.append, settings)
    assert len(said) == settings.steps == 12
    return results.load(folder)


def test_a_whole_run_says_that_it_is_complete(finished: results.Run) -> None:
    """The head tells how it ended, what was seeded, and that both variants answered alike."""
    head = finished.head

    assert (head.status, head.note) == ("complete", "")
    assert head.receipt["providers"] == 14
    assert head.spent_s.keys() >= {"data", "closed_load", "count", "comparison", "profile", "open_load"}
    assert head.same_responses["checked"] == ["naive", "tuned", "placement"]
    assert head.same_responses["equal"] is True
    assert (head.same_responses["allocation_requests"], head.same_responses["provider_summaries"]) == (4, 14)


def test_each_pass_has_its_telemetry(finished: results.Run) -> None:
    """Workers, client and backends of each pass apart; the client's requests are those of the pass, one by one. Of
    Placement there is no worker's."""
    telemetry, passes = finished.telemetry, ("naive-closed", "naive-open", "tuned-closed", "tuned-open")
    others = {"naive-counted", "tuned-counted", "placement-closed", "placement-open"}

    assert set(passes) | others == {file.part for file in telemetry.files}
    asked = [finished.closed["naive"], finished.open["naive"], finished.closed["tuned"], finished.open["tuned"]]
    assert [each.result.requests for each in asked] == [len(telemetry.part(name).paired()) for name in passes]
    assert "statement" in set(telemetry.part("tuned-counted").durations["series"])
    assert telemetry.truncated == 0


def test_each_variant_was_loaded_without_failures(finished: results.Run) -> None:
    """Closed and open load, every sample kept, CPU and memory read meanwhile."""
    for loaded in (*finished.closed.values(), *finished.open.values()):
        assert loaded.result.requests > 0
        assert loaded.result.failures == 0
        assert len(loaded.result.latency_s) == len(loaded.result.body_bytes) == loaded.result.statuses["200"]
        assert loaded.meters.worker_cpu_s > 0
        assert loaded.meters.backend_cpu_s is not None
        assert loaded.meters.backend_cpu_s > 0
        assert loaded.meters.peak_pss_bytes is not None
    assert set(finished.closed) == set(finished.open) == {"naive", "tuned", "placement"}
    assert set(finished.counted) == {"naive", "tuned"}


def test_naive_takes_more_statements_and_rows(finished: results.Run) -> None:
    """What the optimizations save is counted, over two requests each."""
    naive, tuned = finished.counted["naive"], finished.counted["tuned"]

    assert naive.requests == tuned.requests == 2
    assert naive.statements > tuned.statements > 0
    assert naive.rows > tuned.rows > 0


def test_the_comparison_has_its_blocks(finished: results.Run) -> None:
    """A replicate of one round has six blocks, there and back, none invalid."""
    assert [(block.replicate, block.position) for block in finished.blocks] == [(0, position) for position in range(6)]
    assert {block.variant for block in finished.blocks} == {"naive", "tuned", "placement"}
    assert all(
        block.invalid is None and block.cpu_s and len(block.wall_s) == block.requests for block in finished.blocks
    )


def test_each_profile_is_one_page_with_the_frames_of_the_search(finished: results.Run) -> None:
    """The flame graphs of both variants hold four requests, name the function of the search, and load no fonts."""
    for variant in ("naive", "tuned"):
        page, speedscope = finished.profile(variant), finished.speedscope(variant)

        assert (finished.profiled[variant].requests, finished.profiled[variant].reason) == (4, "")
        assert page is not None
        assert "find_candidates_by_objects" in page.read_text()
        assert "fonts.googleapis" not in page.read_text()
        assert speedscope is not None
        assert "find_candidates_by_objects" in {
            frame["name"] for frame in json.loads(speedscope.read_text())["shared"]["frames"]
        }


def test_the_headline_is_the_ordinary_case(finished: results.Run) -> None:
    """Ten requests, one of which writes and all of which differ, are compared; the load by one request is named as the
    best case below."""
    requests = finished.head.settings["workload"]["requests"]
    report = document_of(finished)

    assert [each["request"].startswith("PUT /allocations/") for each in requests] == [True, *[False] * 9]
    assert [each["weight"] for each in requests] == [1] * 10
    assert {block.requests % 10 for block in finished.blocks} == {0}
    assert report["headline"].startswith("With one write per ten requests, all of them different: ")
    assert "Best case, the same request again and again" in text_of(finished)
    assert "the best case of a variant that keeps" in write_report(finished.folder).read_text()


def test_the_report_shows_the_steps(finished: results.Run) -> None:
    """The page and the table in the terminal name both variants, and the real Placement."""
    page = write_report(finished.folder).read_text()

    assert "naive" in page
    assert "tuned" in page
    assert "tuned" in text_of(finished)
    assert "placement" in text_of(finished)
    assert "The real Placement, openstack-placement" in page


def written_to(server: Server, folder: Path, database: str, *, at: str, told: str) -> results.Run:
    """A run in which somebody writes to this database where a step ends with *at*, and that is told."""

    def say(step: str) -> None:
        if step.endswith(at):
            _execute(server.database_url(database), "DELETE FROM inventories WHERE id = 1")

    with pytest.raises(GateFailedError, match=rf"{told}.*; no speed is printed"):
        make(server, folder, say, replace(SMALL, telemetry=False))
    return results.load(folder)


def test_a_foreign_write_between_two_variants_stops_the_run(server: Server, tmp_path: Path) -> None:
    """Answers that differ end the run with the difference, and its report prints no speed."""
    told, step = "tuned responds differently from naive: ", "tuned: closed-loop load, 0.5 s"
    run = written_to(server, tmp_path / "differing", "placebench_differing", at=step, told=told)
    page = write_report(run.folder).read_text()

    assert (run.head.status, run.head.same_responses["equal"]) == ("failed", False)
    assert "are missing, first:" in page
    assert "requests per second" not in page.lower()


def test_copies_that_are_written_to_do_not_go_unseen(server: Server, tmp_path: Path) -> None:
    """A copy that somebody else writes to ends the comparison, because its responses are no longer those before."""
    told, step = "(naive|tuned|placement) responds to .* differently", "replicate 2 of 2: naive, tuned"
    run = written_to(server, tmp_path / "copies", "placebench_copies_2", at=step, told=told)

    assert run.head.same_responses["equal"] is False
    assert {block.replicate for block in run.blocks} >= {0}


class Reaper:
    """Kills uWSGI's processes from the steps on that it is told: so many of them, at the most until the next step."""

    def __init__(self, kills: Mapping[str, int]) -> None:
        """kills: how many, by the end of the step's name."""
        self._kills = kills
        self._thread: threading.Thread | None = None
        self._next_step = threading.Event()
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        """What a run is told to say its steps to."""
        self._stop()
        self.steps.append(step)
        for name, kills in self._kills.items():
            if step.endswith(name):
                self._thread = threading.Thread(target=self._reap, args=(kills,))
                self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._thread is not None:
            self._next_step.set()
            self._thread.join()
            self._thread = None
        self._next_step.clear()

    def _reap(self, kills: int) -> None:
        while kills and not self._next_step.wait(0.01):
            for child in descendants():
                with suppress(psutil.NoSuchProcess):
                    if kills and child.name() == "uwsgi" and child.status() != psutil.STATUS_ZOMBIE:
                        child.kill()
                        child.wait(5)
                        kills -= 1


ALWAYS = 10_000


@pytest.fixture(scope="module")
def disturbed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> results.Run:
    """A run in which every kind of part fails or does not count.

    uWSGI is killed once under a profile, which is made again, and always under a count, a replicate and an open load;
    the other open load has a generator that may use no CPU.
    """
    reaper = Reaper(
        {
            "naive: count of 2 requests": ALWAYS,
            "replicate 2 of 2: naive, tuned": ALWAYS,
            "tuned: profile of 4 requests": 1,
            "naive: open-loop load, 0.5 to 1.5 s": ALWAYS,
        }
    )
    folder = tmp_path_factory.mktemp("runs") / "disturbed"
    settings = replace(SMALL, load_rules=LoadRules(late_at_most=1.0, client_cpu_at_most=0))

    with reaper:
        make(server, folder, reaper, settings)
    assert len(reaper.steps) >= settings.steps
    return results.load(folder)


def test_parts_that_fail_are_made_again_or_named(disturbed: results.Run) -> None:
    """The run comes to its end, and says which parts are missing and why, wherever it is read."""
    run = disturbed
    page, text = write_report(run.folder).read_text(), text_of(run)

    assert run.head.status == "complete"
    assert [(each.part, each.variant, each.made_again) for each in run.head.failed_parts] == [
        ("count", "naive", False),
        ("comparison", "", False),
        ("profile", "tuned", True),
        ("open-loop load", "naive", False),
        ("open-loop load", "tuned", False),
    ]
    assert (set(run.closed), set(run.counted), set(run.open)) == ({"naive", "tuned"}, {"tuned"}, set())
    assert run.profile("tuned") is not None
    assert [each["reason"] for each in document_of(run)["failed_parts"]] == [
        each.reason for each in run.head.failed_parts
    ]
    for said in (page, text, (run.folder / "summary.md").read_text()):
        assert "The count of naive failed: " in said
        assert "The open-loop load of naive failed: " in said
        assert "The profile of tuned failed: " not in said
    assert "The profile of tuned: " in page


def test_an_open_load_that_does_not_count_is_a_note(disturbed: results.Run) -> None:
    """Both attempts are kept beside, and the complete run says why there is none."""
    run = disturbed

    assert [each.variant for each in run.invalid] == ["tuned", "tuned"]
    assert "The open-loop load of tuned failed: the load generator used" in write_report(run.folder).read_text()
    assert {"tuned-open", "tuned-open-failed"} <= {file.part for file in run.telemetry.files}


def test_a_comparison_without_replicates_is_named(disturbed: results.Run) -> None:
    """Three replicates in a row that do not count end it, as in `compare`; what comes after it is made all the same."""
    run = disturbed
    [failed] = (each for each in run.head.failed_parts if each.part == "comparison")

    lost = [block.replicate for block in run.blocks if block.invalid]
    assert lost[-3:] == [lost[-3], lost[-3] + 1, lost[-3] + 2]
    assert failed.reason.startswith("1 of 2 replicates count: 3 in a row do not, the last because ")
    assert "The comparison failed: 1 of 2 replicates count" in text_of(run)
    assert "The comparison failed: 1 of 2 replicates count" in write_report(run.folder).read_text()


@pytest.mark.usefixtures("in_foreground")
def test_an_interrupt_in_the_second_attempt(server: Server, tmp_path: Path) -> None:
    """The run is interrupted, the report says why there was a second attempt, and nothing runs on."""

    def interrupt(_: str) -> None:
        threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()

    folder = tmp_path / "interrupted"
    with Reaper({"naive: count of 2 requests": 1}) as reaper, pytest.raises(KeyboardInterrupt):
        make(server, folder, reaper, PASSES, note=interrupt)
    run = results.load(folder)

    assert run.head.status == "interrupted"
    assert [(each.part, each.variant, each.made_again) for each in run.head.failed_parts] == [("count", "naive", False)]
    assert "The count of naive failed: " in write_report(folder).read_text()
    assert [each for each in psutil.Process().children(recursive=True) if each.name() == "uwsgi"] == []


def test_a_death_in_a_timed_pass_ends_the_run(server: Server, tmp_path: Path) -> None:
    """Undecided where something can be shown, the environment's fault where nothing can."""
    with Reaper({"naive: closed-loop load, 0.5 s": ALWAYS}) as reaper, pytest.raises(ServerError):
        make(server, tmp_path / "first", reaper)
    with Reaper({"tuned: closed-loop load, 0.5 s": ALWAYS}) as reaper, pytest.raises(UndecidedError):
        make(server, tmp_path / "second", reaper)
    first, second = results.load(tmp_path / "first"), results.load(tmp_path / "second")

    assert (first.head.status, set(first.closed)) == ("failed", set())
    assert (second.head.status, set(second.closed)) == ("failed", {"naive"})
    assert "naive" in text_of(second)


def _execute(url: str, statement: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(statement))


@pytest.fixture
def own_server() -> dict[str, str]:
    """The environment of a command that starts a PostgreSQL of its own."""
    return {name: value for name, value in os.environ.items() if name != "PLACEBENCH_DATABASE_URL"}


def _started(folder: Path, environment: dict[str, str], *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "placebench", "lab", "perfload", "--trees", "2", "--out", str(folder), *options]
    return subprocess.Popen(
        command, env=environment, cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _runs(process: psutil.Process) -> bool:
    """Whether it does anything: an orphan that has ended is a zombie until init collects it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_leaves_a_report_and_no_process(own_server: dict[str, str], tmp_path: Path) -> None:
    """Interrupted again and again after the first pass: what was measured is reported, and nothing runs on."""
    with _started(tmp_path / "run", own_server, "--preset", "quick") as command:
        assert command.stderr is not None
        for line in command.stderr:
            if "count of" in line:
                break
        family = psutil.Process(command.pid).children(recursive=True)
        for _ in range(3):
            command.send_signal(signal.SIGINT)
            time.sleep(0.1)
        stdout, _ = command.communicate(timeout=60)

    run = results.load(tmp_path / "run")
    assert command.returncode == 130
    assert run.head.status == "interrupted"
    assert "naive" in run.closed
    assert stdout.splitlines()[-1] == (tmp_path / "run" / "index.html").as_uri()
    assert [process for process in family if _runs(process)] == []


def test_a_folder_that_holds_something_is_refused(own_server: dict[str, str], tmp_path: Path) -> None:
    """A second run in the same folder is one line, and what is there stays."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("mine")
    with _started(tmp_path / "run", own_server, "--preset", "quick") as command:
        stdout, stderr = command.communicate(timeout=60)

    assert (command.returncode, stdout) == (2, "")
    refusal = f"{tmp_path / 'run'} is not empty, and a run needs its own folder: name another with --out"
    assert stderr.splitlines() == [f"placebench lab perfload: {refusal}"]
    assert (tmp_path / "run" / "run.json").read_text() == "mine"
