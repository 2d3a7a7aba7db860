"""The whole story of perfload, small: a real PostgreSQL, real uWSGI, real locust."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import NullPool, create_engine, text

from placebench import results
from placebench.errors import GateFailedError, UndecidedError
from placebench.experiment.kept import claim_folder
from placebench.experiment.passes import Bench, open_pass
from placebench.experiment.rules import LoadRules
from placebench.experiment.run import Perfload, Settings
from placebench.postgres import Server
from placebench.report import terminal_table, write_report
from placebench.seeding import topology_named

SMALL = Settings(
    variants=("naive", "tuned"),
    processes=1,
    threads=2,
    users=2,
    closed_s=0.5,
    open_s=0.5,
    counted_requests=2,
    profiled_requests=4,
    replicates=2,
    quads=1,
    block_s=0.02,
    telemetry=True,
    load_rules=LoadRules(late_at_most=1.0, client_cpu_at_most=100.0),  # tests share their machine
)


STAND_IN = Path(__file__).parents[1] / "fakes" / "stand_in"


def story(
    server: Server, folder: Path, say: Callable[[str], None] = lambda _: None, settings: Settings = SMALL
) -> Perfload:
    """Two nested trees: four candidates, fourteen providers."""
    topology = topology_named("nested-perfload", trees=2, seed=1)
    return Perfload(topology, settings, claim_folder(folder), server, say=say)


@pytest.fixture(scope="module")
def finished(server: Server, tmp_path_factory: pytest.TempPathFactory) -> results.Run:
    """A run from beginning to end, with what stands in for the real Placement."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    said: list[str] = []
    settings = SMALL.with_placement(sys.executable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(STAND_IN), prepend=os.pathsep)
        story(server, folder, said.append, settings).run()
    assert len(said) == settings.steps == 13
    return results.load(folder)


def test_a_whole_run_says_that_it_is_complete(finished: results.Run) -> None:
    """The head tells how it ended, what was seeded, and that both variants answered alike."""
    head = finished.head

    assert (head.status, head.note) == ("complete", "")
    assert head.receipt["providers"] == 14
    assert head.same_answers["checked"] == ["naive", "tuned", "placement"]
    assert head.same_answers["equal"] is True
    assert (head.same_answers["allocation_requests"], head.same_answers["provider_summaries"]) == (4, 14)


def test_each_pass_has_its_telemetry(finished: results.Run) -> None:
    """Workers, client and backends of each pass apart; the client's requests are those of the pass, one by one. Of
    Placement there is no worker's."""
    telemetry, passes = finished.telemetry, ("naive-closed", "naive-open", "tuned-closed", "tuned-open")
    others = {"naive-counted", "tuned-counted", "placement-closed", "placement-open"}

    assert set(passes) | others == {file.part for file in telemetry.files}
    asked = [finished.closed["naive"], finished.open["naive"], finished.closed["tuned"], finished.open["tuned"]]
    assert [each.result.requests for each in asked] == [len(telemetry.part(name).paired()) for name in passes]
    assert "statement" in set(telemetry.part("tuned-counted").durations["series"])
    assert telemetry.torn == 0


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
    """Two replicates of one round: six blocks each, there and back, none invalid."""
    assert [(block.replicate, block.position) for block in finished.blocks] == [
        (replicate, position) for replicate in (0, 1) for position in range(6)
    ]
    assert {block.arm for block in finished.blocks} == {"naive", "tuned", "placement"}
    assert all(
        block.invalid is None and block.cpu_s and len(block.wall_s) == block.requests for block in finished.blocks
    )


def test_each_profile_is_one_page_with_the_frames_of_the_search(finished: results.Run) -> None:
    """The flame of both variants names our functions and fetches nothing; four requests of 2 users are in it."""
    for variant in ("naive", "tuned"):
        page, speedscope = finished.profile(variant), finished.speedscope(variant)

        assert (finished.watched[variant].requests, finished.watched[variant].reason) == (4, "")
        assert page is not None
        assert "answer_by_objects" in page.read_text()
        assert "fonts.googleapis" not in page.read_text()
        assert speedscope is not None
        assert "answer_by_objects" in {
            frame["name"] for frame in json.loads(speedscope.read_text())["shared"]["frames"]
        }


def test_an_open_load_that_does_not_count_is_kept_beside(server: Server, finished: results.Run, tmp_path: Path) -> None:
    """A generator that may use no CPU: the pass is kept under another name with its reason, and the report says so."""
    shutil.copytree(finished.folder, tmp_path / "run")
    url = server.database_url(f"placebench_{finished.folder.name}")
    bench = Bench(url, finished.head.request, tmp_path / "run", 1, 1, 1, 1)
    with pytest.raises(UndecidedError, match="1 open loads of tuned in a row do not count, the last because the load"):
        open_pass(
            bench,
            "tuned",
            time_s=0.2,
            rate_per_s=20,
            rules=LoadRules(late_at_most=1.0, client_cpu_at_most=0),
            attempts=1,
        )
    run = results.load(tmp_path / "run")

    assert [each.variant for each in run.invalid] == ["tuned"]
    assert run.open["tuned"].result == finished.open["tuned"].result
    assert "tuned, open load: the load generator used" in write_report(run.folder).read_text()


def test_the_report_shows_the_ladder(finished: results.Run) -> None:
    """The page and the table in the terminal name both variants, and the real Placement."""
    page = write_report(finished.folder).read_text()

    assert "naive" in page
    assert "tuned" in page
    assert "tuned" in terminal_table(finished)
    assert "placement" in terminal_table(finished)
    assert "The real program, openstack-placement" in page


def written_to(server: Server, folder: Path, database: str, *, at: str) -> results.Run:
    """A run in which somebody writes to this database where a step ends with *at*: tuned is told to differ."""

    def say(step: str) -> None:
        if step.endswith(at):
            _execute(server.database_url(database), "DELETE FROM inventories WHERE id = 1")

    with pytest.raises(GateFailedError, match=r"tuned answers differently from naive: .*; no speed is printed"):
        story(server, folder, say).run()
    return results.load(folder)


def test_a_foreign_write_between_two_variants_stops_the_run(server: Server, tmp_path: Path) -> None:
    """Answers that differ end the run with the difference, and its report prints no speed."""
    run = written_to(server, tmp_path / "differing", "placebench_differing", at="tuned: closed load, 0.5 s")
    page = write_report(run.folder).read_text()

    assert (run.head.status, run.head.same_answers["equal"]) == ("failed", False)
    assert "are missing, first:" in page
    assert "requests per second" not in page.lower()


def test_copies_that_are_written_to_do_not_go_unseen(server: Server, tmp_path: Path) -> None:
    """An answer under load is held to the first one as well: a copy that somebody writes to ends the comparison."""
    run = written_to(server, tmp_path / "copies", "placebench_copies_tuned", at="replicate 2 of 2")

    assert run.head.same_answers["equal"] is False
    assert {block.replicate for block in run.blocks} == {0, 1}
    assert list((run.folder / "answers").iterdir())


def test_a_replicate_that_does_not_count_has_another_in_its_place(server: Server, tmp_path: Path) -> None:
    """A server that dies in the first replicate costs that one; two count in the end."""
    killers: list[threading.Thread] = []

    def say(step: str) -> None:
        if step.endswith("replicate 1 of 2") and not killers:
            killers.append(threading.Thread(target=_kill_a_uwsgi))
            killers[0].start()

    story(server, tmp_path / "again", say).run()
    run = results.load(tmp_path / "again")
    lost = {block.replicate for block in run.blocks if block.invalid}

    assert lost == {0}
    assert {block.replicate for block in run.blocks} - lost == {1, 2}


def _kill_a_uwsgi() -> None:
    """The first that this process starts from now on."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if child.name() == "uwsgi":
                    child.kill()
                    return
        time.sleep(0.001)


def _execute(url: str, statement: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(statement))


@pytest.fixture
def own_server() -> dict[str, str]:
    """The environment of a command that starts a PostgreSQL of its own."""
    return {name: value for name, value in os.environ.items() if name != "PLACEBENCH_DATABASE_URL"}


def _started(folder: Path, environment: dict[str, str], *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "placebench", "perfload", "--trees", "2", "--out", str(folder), *options]
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
    with _started(tmp_path / "run", own_server, "--quick") as command:
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
    with _started(tmp_path / "run", own_server, "--quick") as command:
        stdout, stderr = command.communicate(timeout=60)

    assert (command.returncode, stdout) == (2, "")
    refusal = f"{tmp_path / 'run'} is not empty, a run wants a folder of its own: name another with --out"
    assert stderr.splitlines() == [f"placebench perfload: {refusal}"]
    assert (tmp_path / "run" / "run.json").read_text() == "mine"
