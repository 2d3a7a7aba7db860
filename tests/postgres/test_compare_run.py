"""A comparison from beginning to end: a real PostgreSQL, real uWSGI, small clouds, and what goes wrong on the way."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from descendants import descendants
from reports import document_of, text_of
from sqlalchemy import NullPool, create_engine, text

from placebench import results
from placebench.cli import main
from placebench.compare.compare_run import CompareRun, CompareSettings
from placebench.compare.keep.run_folder import claim_folder, lock
from placebench.compare.what.variants import Variant, read_variants
from placebench.errors import GateFailedError, RunFolderError, UndecidedError
from placebench.lab.inventory.data_sets import TopologyData
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.placement_api import placement_workload
from placebench.report import write_report
from placebench.runtime.postgres import Server, open_server

TOPOLOGY = find_topology("nested-perfload", trees=2, seed=1)
APPS = Path(__file__).parents[1] / "processes" / "compare"
SLEEPY = "/asleep?sleep=0.005"  # so that the client has time to wait


def settings(*variants: Variant, replicates: int = 2) -> CompareSettings:
    """As small as it gets: one round of tiny blocks."""
    return CompareSettings(
        variants,
        placement_workload(TOPOLOGY.request),
        replicates=replicates,
        rounds=1,
        block_s=0.02,
        counted_requests=2,
    )


def small(*names: str) -> tuple[Variant, ...]:
    """An application that starts in a tenth of the reference service's time, for what no service is needed to see."""
    return tuple(
        Variant(name, "small_app:application", {"PYTHONPATH": str(APPS)}, request=SLEEPY, ours=False) for name in names
    )


def nobody(_: str) -> None:
    """Does not listen to the steps."""


@pytest.fixture(scope="module")
def finished(server: Server, tmp_path_factory: pytest.TempPathFactory) -> results.Run:
    """Three variants, two replicates."""
    folder = claim_folder(tmp_path_factory.mktemp("runs") / "three")
    CompareRun(TopologyData(TOPOLOGY), settings(*read_variants(["naive", "tuned", "noop"])), folder, server).run(nobody)
    return results.load(folder)


def test_the_interface_of_the_json(finished: results.Run) -> None:
    """Every key that others read; two replicates have ratios and no verdict."""
    document = document_of(finished)
    keys = {"baseline", "variant", "metric", "ratio", "low", "high", "confidence"}
    keys |= {"p_adjusted", "verdict", "detectable"}
    cpu = {each["variant"]: each for each in document["comparisons"] if each["metric"] == "cpu_s"}

    assert (document["seed"], document["same_responses"]) == (1, True)
    assert document["replicates"] + document["invalidated"] >= 2
    assert all(keys <= each.keys() for each in document["comparisons"])
    assert {each["metric"] for each in document["comparisons"] if each["variant"] == "tuned"} == {
        "cpu_s",
        "wall_s",
        "pss_bytes",
        "start_s",
        "start_cpu_s",
        "start_pss_bytes",
        "statements",
        "rows",
        "round_trips",
        "bytes_sent",
        "bytes_received",
        "gc_s",
    }
    assert cpu["tuned"]["baseline"] == cpu["noop"]["baseline"] == "naive"
    assert cpu["noop"]["ratio"] < cpu["tuned"]["ratio"] < 1


def valid_replicates(run: results.Run) -> list[int]:
    """Their numbers; a busy machine may invalidate any replicate, which another one replaces then."""
    numbers = {block.replicate for block in run.blocks}
    return sorted(numbers - {block.replicate for block in run.blocks if block.invalid})


def test_every_replicate_is_a_mirrored_round_of_all_variants(finished: results.Run) -> None:
    """Six blocks a replicate, there and back, each with its CPU, its memory and the digest of what was answered."""
    for replicate in valid_replicates(finished):
        blocks = [block for block in finished.blocks if block.replicate == replicate]
        order = [block.variant for block in blocks]

        assert order == order[::-1]
        assert sorted(set(order)) == ["naive", "noop", "tuned"]
        assert all(block.cpu_s and block.counters["pss_bytes"] > 0 and block.responses for block in blocks)


def test_each_request_is_counted_on_its_way(finished: results.Run) -> None:
    """naive asks more than tuned, the control asks nothing, and both requests cost the same."""
    naive, tuned, noop = (finished.wire[name] for name in ("naive", "tuned", "noop"))

    assert naive.statements is not None
    assert tuned.statements is not None
    assert naive.statements[0] > tuned.statements[0] > 0
    assert set(naive.statements) == {naive.statements[0]}
    # BEGIN and ROLLBACK are round trips and no statements.
    assert naive.round_trips == [statements + 2 for statements in naive.statements]
    assert noop.statements == noop.rows == noop.round_trips == noop.bytes_sent == [0.0] * 2
    assert min(naive.bytes_received) > min(tuned.bytes_received) > 0


def test_each_variant_of_ours_was_profiled(finished: results.Run) -> None:
    """Flames, statements and collections of both; the control has a request of its own. The time adds up.

    What the verdict is made of comes first.
    """
    profiled, spent_s = finished.profiled, finished.head.spent_s
    naive = finished.session("naive")
    page = write_report(finished.folder).read_text()

    assert naive is not None
    assert any("find_candidates_by_objects" in frame for stack, _ in naive.frame_records for frame in stack)
    assert (profiled["noop"].reason, finished.session("noop")) == ("it has a request of its own", None)
    assert sum(each.calls for each in finished.wire["naive"].by_statement) == finished.wire["naive"].statements[0]
    assert len(finished.counted["naive"].gc_s_each) == finished.counted["naive"].requests == 6
    steps = ("data", "count", "comparison", "profile")
    assert tuple(each for each in spent_s if each in steps) == steps
    assert 0 < spent_s["requests"] + spent_s["start"] + spent_s["stop"] < spent_s["replicates"]
    assert page.count('class="flame"') == 2
    assert "Frames by self time" in page
    assert "noop: no flame graph, it has a request of its own." in page


def test_page_and_table_show_each_comparison(finished: results.Run) -> None:
    """The page has a row for each metric of each variant, and nothing about loads that were not made."""
    page, table = write_report(finished.folder).read_text(), text_of(finished)

    assert page.count("round trips") >= 2
    assert "Latency under closed-loop load" not in page
    rows = {tuple(line.split()[:2]): line for line in table.splitlines()}
    assert ("statements", "tuned") in rows
    assert rows["statements", "noop"].endswith("less"), "nothing against something has no ratio, and is less"


def test_bodies_do_not_stay_when_all_is_well(finished: results.Run) -> None:
    """Answers are run while a run goes on, and after it only where they differ."""
    assert not (finished.folder / "responses").exists()


@pytest.mark.long
def test_the_same_question_goes_on_and_another_is_refused(server: Server, tmp_path: Path) -> None:
    """A second sitting makes only what is missing; the run keeps its beginning and adds up its time."""
    folder = claim_folder(tmp_path / "sittings")
    CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "two"), replicates=1), folder, server).run(nobody)
    first = results.load(folder)
    with (folder / "blocks.jsonl").open("a") as file:
        file.write(json.dumps({**asdict(first.blocks[0]), "replicate": 1}) + "\n")
        file.write('{"replicate": 1, "qu')
    # A run that was killed had more replicates to make.
    replace(first.head, settings={**first.head.settings, "replicates": 2}).save(folder / "run.json")
    said: list[str] = []
    CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "two")), folder, server).run(said.append)
    whole = results.load(folder)

    made = len(first.blocks)
    assert len(valid_replicates(whole)) == 2
    assert whole.blocks[:made] == first.blocks
    assert min(block.replicate for block in whole.blocks[made:]) == first.blocks[-1].replicate + 1
    assert {step for step in said if step.startswith("replicate")} == {"replicate 2 of 2: one, two"}
    assert whole.head.elapsed_s > first.head.elapsed_s
    with pytest.raises(RunFolderError, match="holds a run that differs in its variants"):
        CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "three")), folder, server)


def test_two_do_not_work_in_one_folder(tmp_path: Path) -> None:
    """The second is told so."""
    folder = claim_folder(tmp_path / "mine")

    with lock(folder), pytest.raises(RunFolderError, match="another placebench works in"), lock(folder):
        pass


def _kill(name: str, *, after: Callable[[psutil.Process], bool]) -> None:
    """SIGKILL to the first descendant with this name that *after* likes, as soon as there is one, until it is gone."""
    while True:
        for process in descendants():
            try:
                if process.name().startswith(name) and after(process):
                    process.kill()
                    process.wait()
                    return
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.01)


def _is_worker(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and parent.name().startswith("uwsgi")


@pytest.mark.long
def test_a_killed_worker_invalidates_its_replicate(server: Server, tmp_path: Path) -> None:
    """The replicate does not count and says why; another is made in its place."""
    killers: list[threading.Thread] = []

    def say(step: str) -> None:
        if step.startswith("replicate 2") and not killers:
            killers.append(threading.Thread(target=_kill, args=("uwsgi",), kwargs={"after": _is_worker}))
            killers[0].start()

    folder = claim_folder(tmp_path / "killed")
    CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "two")), folder, server).run(say)
    killers[0].join()
    run = results.load(folder)
    reasons = [block.invalid for block in run.blocks if block.invalid]

    assert run.head.status == "complete"
    assert len(valid_replicates(run)) == 2
    assert any("uWSGI" in reason or "requests failed" in reason for reason in reasons)
    assert document_of(run)["invalidated"] == len({block.replicate for block in run.blocks if block.invalid}) >= 1


def _watches(mode: str) -> Callable[[psutil.Process], bool]:
    """Whether a process is the master of a service under the profiler in this mode."""

    def asked(process: psutil.Process) -> bool:
        return not _is_worker(process) and process.environ().get("PLACEBENCH_PROFILE") == mode

    return asked


@pytest.mark.long
def test_passes_that_fail_do_not_end_a_comparison(server: Server, tmp_path: Path) -> None:
    """The count of naive's collections is killed twice, and named; its profile once, and made again."""

    def kill() -> None:
        for mode in ("light", "light", "sampled"):
            _kill("uwsgi", after=_watches(mode))

    killer = threading.Thread(target=kill)
    killer.start()
    folder, notes = claim_folder(tmp_path / "parts"), list[str]()
    CompareRun(TopologyData(TOPOLOGY), settings(*read_variants(["naive", "tuned"]), replicates=1), folder, server).run(
        nobody, notes.append
    )
    killer.join()
    run = results.load(folder)

    assert run.head.status == "complete"
    assert [(each.part, each.variant) for each in run.head.failed_parts] == [("count", "naive")]
    assert set(run.counted) == {"tuned"}
    assert {name: each.reason for name, each in run.profiled.items()} == {"naive": "", "tuned": ""}
    assert len(notes) == 3
    assert "The count of naive failed: " in text_of(run)


@pytest.mark.long
def test_a_server_that_is_gone_ends_the_run_with_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL is killed after the first replicate: three in a row do not count, the first one stays."""
    monkeypatch.delenv("PLACEBENCH_DATABASE_URL", raising=False)
    with open_server() as own:

        def say(step: str) -> None:
            if step.startswith("replicate 2") and own.pid:
                with suppress(ProcessLookupError):
                    os.kill(own.pid, signal.SIGKILL)

        folder = claim_folder(tmp_path / "gone")
        with pytest.raises(UndecidedError, match="1 of 6 replicates count: 3 in a row do not, the last because"):
            CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "two"), replicates=6), folder, own).run(say)
    run = results.load(folder)

    assert run.head.status == "failed"
    (kept,) = valid_replicates(run)
    assert [block.replicate for block in run.blocks if block.invalid][-3:] == [kept + 1, kept + 2, kept + 3]
    assert len([block for block in run.blocks if block.replicate == kept]) == 4


@pytest.mark.long
def test_data_that_changes_prints_no_speed(server: Server, tmp_path: Path) -> None:
    """Somebody writes to one variant's database in the middle, while the other one uses it: no speed, and the bodies
    stay to be looked at."""

    def say(step: str) -> None:
        if step.startswith("replicate 2"):
            engine = create_engine(server.database_url("placebench_written_2"), poolclass=NullPool)
            with engine.begin() as connection:
                connection.execute(text("UPDATE inventories SET total = total + 1 WHERE id = 1"))

    folder = claim_folder(tmp_path / "written")
    with pytest.raises(GateFailedError, match=r"no speed is printed"):
        CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "two")), folder, server).run(say)
    run = results.load(folder)

    assert run.head.same_responses["equal"] is False
    assert "the data of one changed" in run.head.same_responses["difference"]
    assert run.blocks
    assert document_of(run)["comparisons"] == []
    with pytest.raises(RunFolderError, match=r"ended because the data of one changed, .*: begin a new one"):
        CompareRun(TopologyData(TOPOLOGY), settings(*small("one", "two")), folder, server)


def plan_of_two(folder: Path, keys: str = "") -> Path:
    """The same application twice."""
    path = folder / "plan.toml"
    variants = [f"[variants.{name}]\napp = 'small_app:application'\npath = '{APPS}'\n" for name in ("one", "two")]
    path.write_text(keys + "".join(variants))
    return path


CONNECTS = """
import os
from sqlalchemy import NullPool, QueuePool, create_engine, text

poolclass = NullPool if os.environ["POOL"] == "none" else QueuePool
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"], poolclass=poolclass)


def application(environ, start_response):
    with engine.connect() as connection:
        total = connection.scalar(text("SELECT sum(i) FROM generate_series(1, 300000) AS i"))
    body = str(total).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.mark.long
def test_the_cpu_of_connections_that_come_and_go_is_measured(server: Server, tmp_path: Path) -> None:
    """A variant that connects anew for each request has the CPU of its ended backends; all say what it contains."""
    (tmp_path / "connects.py").write_text(CONNECTS)
    shared = {"PYTHONPATH": str(tmp_path), "SQLALCHEMY_DATABASE_URL": "{database_url}"}
    variants = [
        Variant(pool, "connects:application", {**shared, "POOL": pool}, request="/", ours=False)
        for pool in ("one", "none")
    ]
    folder = claim_folder(tmp_path / "run")
    chosen = replace(settings(*variants, replicates=1), block_s=0.2)
    CompareRun(TopologyData(TOPOLOGY), chosen, folder, server).run(nobody)
    run = results.load(folder)
    cpu_s = {
        pool: [each.cpu_s / each.requests for each in run.blocks if each.variant == pool and each.cpu_s is not None]
        for pool in ("one", "none")
    }

    assert {pool: len(found) for pool, found in cpu_s.items()} == {"one": 2, "none": 2}
    # The statement takes PostgreSQL some 20 ms, which a pool's backend and one of a single request both use.
    assert sum(cpu_s["none"]) > 0.8 * sum(cpu_s["one"])
    # Nobody works after a response; the other variant's work between two blocks is not this one's.
    assert all(each.counters["after_cpu_s"] < 0.25 * each.cpu_s for each in run.blocks if each.cpu_s)
    assert "Connections of none came and went: server CPU is that of the service" in text_of(run)


def _words(server: Server, folder: Path) -> list[str]:
    return ["compare", "--server", server.url, "--trees", "1", "--rounds", "1", "--out", str(folder)]


def _compare(server: Server, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "placebench", *_words(server, folder), *arguments],
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_a_run_killed_in_the_middle_goes_on(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 in the second replicate of two; --resume makes it anew, and too few are one line and exit code 3.

    A gate that failed goes before that: the same run once more, which has all its replicates, ends with 1.
    """
    asked = ("one", "two", "--plan", str(plan_of_two(tmp_path)), "--request", SLEEPY, "--replicates", "2")
    with _compare(server, tmp_path / "run", *asked) as command:
        assert command.stderr is not None
        for line in command.stderr:
            if "replicate 2 of 2" in line:
                break
        command.kill()
    left = results.load(tmp_path / "run")
    again = main([*_words(server, tmp_path / "run"), *asked, "--resume", "--json", "--gate", "statements <= 0"])
    said = capsys.readouterr()
    run = results.load(tmp_path / "run")

    assert (left.head.status, len(valid_replicates(left)), len(valid_replicates(run))) == ("running", 1, 2)
    assert run.blocks[: len(left.blocks)] == left.blocks
    assert again == 3
    assert said.err.splitlines()[-1] == "placebench compare: inconclusive: 2 replicates, 6 needed"
    assert json.loads(said.out)["replicates"] == 2
    assert main([*_words(server, tmp_path / "run"), *asked, "--resume", "--gate", "round_trips > 0"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("placebench compare: gate 'round_trips > 0' failed for two: 0")


@pytest.mark.long
def test_a_gate_that_fails_ends_with_1(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts alone, in seconds: one statement more than the budget, and the files for CI say so."""
    gates = ("--gate", "statements <= 10", "--gate", "rows <= 100000")
    code = main([*_words(server, tmp_path / "run"), "noop", "tuned", "--replicates", "0", *gates])
    summary_md = (tmp_path / "run" / "summary.md").read_text()

    assert code == 1
    assert (
        capsys.readouterr().err.splitlines()[-1] == "placebench compare: gate 'statements <= 10' failed for tuned: 12"
    )
    assert "| `rows <= 100000` | tuned | **passed** |" in summary_md
    assert (tmp_path / "run" / "junit.xml").is_file()


@pytest.mark.long
@pytest.mark.usefixtures("in_foreground")
@pytest.mark.parametrize("closed", [False, True], ids=["SIGQUIT", "the terminal is closed"])
def test_other_ends_than_ctrl_c_leave_a_report(closed: bool, tmp_path: Path) -> None:
    """Ctrl-\\, and the end of the terminal, of which the kernel tells by SIGHUP: exit code 130, and a page."""
    terminal, theirs = os.openpty()
    plan = plan_of_two(tmp_path, 'database = "none"\n')
    words = ["compare", "--plan", str(plan), "--request", SLEEPY, "--replicates", "4", "--rounds", "1"]
    command = subprocess.Popen(
        [sys.executable, "-m", "placebench", *words, "--out", str(tmp_path / "run")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    said = b""
    while b"replicate 2 of" not in said:
        said += os.read(terminal, 4096)
    if closed:
        os.close(terminal)
    else:
        os.write(terminal, b"\x1c")
        threading.Thread(target=_read_to_the_end, args=(terminal,)).start()
    code = command.wait(60)
    run = results.load(tmp_path / "run")

    assert (code, run.head.status) == (130, "interrupted")
    assert run.head.note.startswith("interrupted by the user")
    assert valid_replicates(run)
    assert (tmp_path / "run" / "index.html").is_file()


def _read_to_the_end(terminal: int) -> None:
    with suppress(OSError):  # EIO: the last program has closed it
        while os.read(terminal, 4096):
            pass
    os.close(terminal)
