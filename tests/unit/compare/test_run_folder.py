"""The folder of a run: what a resumed run has to have in common, parts that fail, and how a run ends."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import run_head

from placebench import __version__
from placebench.compare.keep.records import FailedPart, Measurement, RunHead, append_lines
from placebench.compare.keep.run_folder import RunFolder, check_resumable, claim_folder, measure_each, new_folder
from placebench.errors import GateFailedError, LoadError, RunFolderError, ServerError

HEAD = run_head(
    variants=["naive"],
    settings={"repeats": 5, "points": [{"variant": "naive", "latency_ms": 0.5 * number} for number in range(99)]},
)


def test_a_run_wants_a_folder_of_its_own(tmp_path: Path) -> None:
    """Neither a file nor a folder with something in it."""
    (tmp_path / "file").write_text("")

    with pytest.raises(RunFolderError, match=r"/file is a file, and a run needs its own folder: name another"):
        claim_folder(tmp_path / "file")
    with pytest.raises(RunFolderError, match=r"is not empty, and a run needs its own folder.*--out$"):
        claim_folder(tmp_path, can_resume=True)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"--out, or continue this run with --resume$"):
        claim_folder(tmp_path, can_resume=True)


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    """Their names sort in the order of the runs."""
    made = [new_folder("history", tmp_path) for _ in range(3)]

    assert made == sorted(set(made))


def test_runs_that_begin_at_one_moment_have_folders_of_their_own(tmp_path: Path) -> None:
    """Threads here, processes in life: each gets another folder, or is refused where it names the folder itself."""
    together = threading.Barrier(8)

    def begin(_: int) -> Path:
        together.wait()
        return new_folder("compare", tmp_path)

    def claim(_: int) -> Path | None:
        together.wait()
        try:
            return claim_folder(tmp_path / "mine")
        except RunFolderError:
            return None

    with ThreadPoolExecutor(8) as threads:
        assert 8 == len(set(threads.map(begin, range(8))))
        assert [tmp_path / "mine"] == [each for each in threads.map(claim, range(8)) if each]


def test_another_run_is_told_in_short(tmp_path: Path) -> None:
    """Only what differs, and of a long list its beginning."""
    HEAD.save(tmp_path / "run.json")

    assert HEAD == check_resumable(tmp_path, HEAD)
    with pytest.raises(RunFolderError, match=r"a run that differs in its settings: repeats was 5, is now 3$"):
        check_resumable(tmp_path, replace(HEAD, settings={**HEAD.settings, "repeats": 3}))
    with pytest.raises(RunFolderError, match=r"points was \[\{'variant': 'naive', .* …, is now \[\]$") as told:
        check_resumable(tmp_path, replace(HEAD, settings={**HEAD.settings, "points": []}))
    assert len(str(told.value)) < 400


def test_a_run_whose_answers_differed_does_not_go_on(tmp_path: Path) -> None:
    """What made them differ may be gone since; what was measured until then is of variants that do not do the same."""
    replace(HEAD, same_responses={"equal": False, "difference": "tuned lacks one"}).save(tmp_path / "run.json")

    with pytest.raises(RunFolderError, match=r"ended because tuned lacks one: begin a new one$"):
        check_resumable(tmp_path, HEAD)


def test_a_run_of_another_version_does_not_go_on(tmp_path: Path) -> None:
    """Both versions are named before anything that they write differently."""
    replace(HEAD, command="other", manifest={"placebench": "0.2.0"}).save(tmp_path / "run.json")

    with pytest.raises(RunFolderError, match=rf"that placebench 0\.2\.0 began, and this is {__version__}: begin a new"):
        check_resumable(tmp_path, HEAD)


def manifest_with(**changed: Any) -> dict[str, Any]:
    """A manifest; of the machine what lasts and what is passing by."""
    machine = {"processor": "EPYC", "cores": 2, "load_average_1min": 0.3}
    return {"argv": ["a"], "code": "12ab", "packages": {"sqlalchemy": "2.1.0"}, "machine": machine, **changed}


def test_another_session_has_the_same_environment(tmp_path: Path) -> None:
    """How it was called, the commit of the documents and the load of the moment may be others."""
    run = RunFolder(tmp_path, HEAD)
    run.record_environment(receipt={"digest": "d1"}, manifest=manifest_with())
    later = manifest_with(argv=["b"], commit="c2", machine={"processor": "EPYC", "cores": 2, "load_average_1min": 1.0})
    run.record_environment(receipt={"digest": "d1"}, manifest=later)

    assert run.head.manifest == later


@pytest.mark.parametrize(
    ("digest", "manifest", "told"),
    [
        ("d2", manifest_with(), "data was d1, is now d2"),
        ("d1", manifest_with(code="34cd"), "code was 12ab, is now 34cd"),
        ("d1", manifest_with(packages={"sqlalchemy": "2.1.3"}), "sqlalchemy was 2.1.0, is now 2.1.3"),
        ("d1", manifest_with(machine={"processor": "Xeon", "cores": 2}), "processor was EPYC, is now Xeon"),
    ],
)
def test_a_run_does_not_go_on_with_something_else(
    tmp_path: Path, digest: str, manifest: dict[str, Any], told: str
) -> None:
    """Other data, code, packages or machine: one verdict would be about neither; run.json stays as it was."""
    run = RunFolder(tmp_path, HEAD)
    run.record_environment(receipt={"digest": "d1"}, manifest=manifest_with())

    with pytest.raises(RunFolderError, match=f"was begun on something else: {told}; begin a new run"):
        run.record_environment(receipt={"digest": digest}, manifest=manifest)
    assert run.head.manifest == manifest_with()


def test_a_complete_run_stays_complete_if_it_may_not_go_on(tmp_path: Path) -> None:
    """A session with other packages ends with an error, and what was measured before has not failed."""
    run = RunFolder(tmp_path, replace(HEAD, status="complete"))
    run.record_environment(receipt={}, manifest=manifest_with())

    with pytest.raises(RunFolderError), run.recorded():
        run.record_environment(receipt={}, manifest=manifest_with(packages={"sqlalchemy": "2.1.3"}))
    assert (RunHead.load(tmp_path / "run.json").status, run.head.note) == ("complete", "")


def test_a_run_of_a_newer_format_does_not_go_on(tmp_path: Path) -> None:
    """It is named, and stays as it is."""
    newer = '{"format_version": 99, "name": "later"}'
    (tmp_path / "run.json").write_text(newer)

    with pytest.raises(RunFolderError, match=r"run\.json: format 99 was written by a newer placebench"):
        check_resumable(tmp_path, HEAD)
    assert (tmp_path / "run.json").read_text() == newer


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run in its first moment."""
    return RunFolder(tmp_path, replace(HEAD, status="running"))


def ends(*outcomes: BaseException | None) -> Callable[[], None]:
    """A part that ends so each time that it is made; None: well."""
    left: Iterator[BaseException | None] = iter(outcomes)

    def make() -> None:
        if (error := next(left)) is not None:
            raise error

    return make


def on_disk(run: RunFolder, folder: Path) -> list[FailedPart]:
    """The failed parts as a reader of the folder sees them; the same as in memory."""
    read = RunHead.load(folder / "run.json").failed_parts
    assert read == run.head.failed_parts
    return read


def test_the_time_between_two_steps_belongs_to_the_phase_of_the_first(run: RunFolder, tmp_path: Path) -> None:
    """All time from the first step to the end is some phase's, and a later session adds to it."""
    steps: list[str] = []
    run.say = steps.append
    for session in (1, 2):
        with run.recorded():
            run.begin_step("data", f"seed {session}")
            run.begin_step("count", f"count {session}")
        saved = RunHead.load(tmp_path / "run.json")

        assert saved.spent_s.keys() == {"data", "count"}
        assert 0 < sum(saved.spent_s.values()) <= saved.elapsed_s
        run = RunFolder(tmp_path, saved)
        run.say = steps.append
    assert steps == ["seed 1", "count 1", "seed 2", "count 2"]


def test_a_part_that_fails_twice_is_named_with_the_last_reason(run: RunFolder, tmp_path: Path) -> None:
    """Each failure is a note; an error that is not ours says its kind."""
    notes: list[str] = []

    run.note = notes.append
    run.run_optional_part("profile", "tuned", ends(ServerError("a worker\ndied"), ConnectionResetError("gone")))

    assert on_disk(run, tmp_path) == [FailedPart("profile", "tuned", "ConnectionResetError: gone")]
    assert notes == [
        "tuned profile failed, it is tried once more: a worker died",
        "tuned profile failed, the run goes on without it: ConnectionResetError: gone",
    ]


def test_a_part_that_fails_once_is_not_missing(run: RunFolder, tmp_path: Path) -> None:
    """The reason of the first attempt stays; a part that is well at once leaves nothing."""
    run.run_optional_part("count", "naive", ends(None))
    run.run_optional_part("count", "tuned", ends(LoadError("no answer"), None))

    assert on_disk(run, tmp_path) == [FailedPart("count", "tuned", "no answer", made_again=True)]


def test_a_later_sitting_makes_what_was_missing(run: RunFolder, tmp_path: Path) -> None:
    """A part that failed twice and is made when the run is resumed is no longer missing."""
    run.run_optional_part("count", "tuned", ends(LoadError("one"), LoadError("two")))

    run.run_optional_part("count", "tuned", ends(None))

    assert on_disk(run, tmp_path) == [FailedPart("count", "tuned", "two", made_again=True)]


@pytest.mark.parametrize("fatal", [GateFailedError("the answers differ"), KeyboardInterrupt()])
def test_what_ends_the_run_in_the_second_attempt(run: RunFolder, tmp_path: Path, fatal: BaseException) -> None:
    """It passes, and the reason why there was a second attempt is on the disk."""
    with pytest.raises(type(fatal)):
        run.run_optional_part("open-loop load", "tuned", ends(ServerError("a worker died"), fatal))

    assert on_disk(run, tmp_path) == [FailedPart("open-loop load", "tuned", "a worker died")]


def test_answers_that_differ_are_not_asked_again(run: RunFolder) -> None:
    """One attempt, and nothing is named: the run ends."""
    with pytest.raises(GateFailedError):
        run.run_optional_part("count", "tuned", ends(GateFailedError("the answers differ")))

    assert run.head.failed_parts == []


def test_what_is_missing_is_measured_until_it_is_valid() -> None:
    """The second of three needs two attempts, the third is given up after three."""
    reasons = iter([None, "late", None, "a", "b", "c"])
    attempted: list[int] = []
    given_up: list[tuple[int, str]] = []

    def attempt(number: int) -> str | None:
        attempted.append(number)
        return next(reasons)

    measure_each([1, 2, 3], attempt, lambda number, reason: given_up.append((number, reason)))

    assert attempted == [1, 2, 2, 3, 3, 3]
    assert given_up == [(3, "c")]


def test_what_a_run_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Folders and records, whatever the umask; a folder that is made for runs is kept out of commits."""
    before = os.umask(0)
    try:
        folder = new_folder("compare", tmp_path / "above" / "profiles")
        HEAD.save(folder / "run.json")
        append_lines(folder / "lines.jsonl", [Measurement({}, 0, {})])
    finally:
        os.umask(before)

    made = (tmp_path / "above", folder.parent, folder, *folder.iterdir())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}
    folders = dict.fromkeys(("above", "profiles", folder.name, "log"), 0o700)
    assert modes == {**folders, "run.json": 0o600, "lines.jsonl": 0o600}
    assert (folder.parent / ".gitignore").read_text().splitlines()[-1] == "*"


def test_a_folder_that_was_there_gets_no_gitignore(tmp_path: Path) -> None:
    """It is the user's."""
    new_folder("compare", tmp_path)

    assert [path.name for path in tmp_path.glob(".git*")] == []


def test_a_record_has_no_secret_and_can_be_resumed(tmp_path: Path) -> None:
    """What is compared with a record is compared without secrets too."""
    head = replace(HEAD, topology="setup: PGPASSWORD=hunter2 ./seed", settings={"variables": {"API_KEY": "hunter2"}})
    head.save(tmp_path / "run.json")

    assert "hunter2" not in (tmp_path / "run.json").read_text()
    assert check_resumable(tmp_path, head).settings == {"variables": {"API_KEY": "***"}}
