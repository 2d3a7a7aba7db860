"""What a run leaves behind can be read again, and what cannot be read says so."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import load_result, run_head

from placebench import results
from placebench.compare.keep.records import Block, LoadPass, RunHead, append_lines
from placebench.compare.keep.run_folder import check_resumable, lock
from placebench.errors import RunFolderError
from placebench.meters.readings import Meters

LOADED = LoadPass(
    variant="naive",
    result=load_result([1.0, 0.9, 0.8, 1.1], users=2, elapsed_s=2.0),
    meters=Meters(worker_cpu_s=1.8, backend_cpu_s=0.2, peak_pss_bytes=100),
)
HEAD = run_head()


def block(replicate: int) -> Block:
    """A block of one request."""
    return Block(replicate=replicate, round=0, position=0, variant="naive", requests=1, wall_s=[0.5], cpu_s=0.4)


def test_a_run_goes_on_when_its_words_have_changed(tmp_path: Path) -> None:
    """Why a change is tried decides nothing; what is measured decides."""
    trial = {"name": "tuned", "kind": "own", "baseline": "naive", "variant": "tuned", "why": "as it was said then"}
    begun = replace(HEAD, settings={"rounds": 6, "trials": [trial]})
    begun.save(tmp_path / "run.json")

    said_better = replace(HEAD, settings={"rounds": 6, "trials": [{**trial, "why": "better"}]})
    assert begun == check_resumable(tmp_path, said_better)
    for settings in ({"rounds": 7, "trials": [trial]}, {"rounds": 6, "trials": [{**trial, "variant": "naive+sets"}]}):
        with pytest.raises(RunFolderError, match="holds a run that differs in its settings"):
            check_resumable(tmp_path, replace(HEAD, settings=settings))


def test_a_pass_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """Saving and loading gives an equal record, the records inside included."""
    LOADED.save(tmp_path / "pass.json")

    assert LoadPass.load(tmp_path / "pass.json") == LOADED


def test_a_resumed_run_keeps_the_keys_of_another_version(tmp_path: Path) -> None:
    """Records inside the head are checked by their types, and written back with all that they hold."""
    trial = {"name": "tuned", "kind": "own", "baseline": "naive", "variant": "tuned", "later": 1}
    settings = {"rounds": 6, "trials": [trial], "rules": {"steal_at_most": 0.2, "later": 2}, "later": 3}
    replace(HEAD, settings=settings, manifest={"later": {"cpu": 4}}, receipt={"later": 5}).save(tmp_path / "run.json")
    written = (tmp_path / "run.json").read_bytes()

    RunHead.load(tmp_path / "run.json").save(tmp_path / "run.json")

    assert written == (tmp_path / "run.json").read_bytes()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"trials": [{"name": "a", "kind": "own", "baseline": "naive"}]}, "settings.trials[0]: variant is missing"),
        ({"rules": {"steal_at_most": -1}}, "settings.rules.steal_at_most: expected a number >= 0.0, saw -1"),
    ],
)
def test_a_record_inside_the_head_that_does_not_fit_is_named(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    """The line has the file, the key, what was expected and what was seen."""
    replace(HEAD, settings=settings).save(tmp_path / "run.json")

    with pytest.raises(RunFolderError) as raised:
        RunHead.load(tmp_path / "run.json")

    assert str(raised.value) == f"{tmp_path / 'run.json'}: {told}"


def test_cpu_per_request_counts_workers_and_backends() -> None:
    """(1.8 s + 0.2 s) over 4 requests."""
    assert LOADED.cpu_s_per_request == 0.5


def test_cpu_of_a_database_elsewhere_is_not_measured() -> None:
    """Without the backends' CPU there is no figure, not a smaller one."""
    elsewhere = replace(LOADED, meters=replace(LOADED.meters, backend_cpu_s=None))

    assert elsewhere.cpu_s_per_request is None


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A file of a newer placebench is one clear line, not a wrong figure."""
    HEAD.save(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**document, "format_version": 99}))

    with pytest.raises(RunFolderError, match=r"run\.json: format 99 was written by a newer placebench, this one reads"):
        results.load(tmp_path)
    with pytest.raises(RunFolderError, match="format 99"), lock(tmp_path):
        check_resumable(tmp_path, HEAD)


def test_an_older_format_is_refused(tmp_path: Path) -> None:
    """A file of an older placebench is refused with what to do, whatever else is in it."""
    (tmp_path / "run.json").write_text('{"format_version": 1, "name": "before"}')

    with pytest.raises(RunFolderError, match=r"run\.json: format 1 .* reads 2: make the run again"):
        results.load(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Half a file is an error with its path."""
    (tmp_path / "run.json").write_text('{"name": "ru')

    with pytest.raises(RunFolderError, match=r"run\.json: cannot be read: "):
        results.load(tmp_path)


def test_a_folder_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    """An empty folder is not a run."""
    with pytest.raises(RunFolderError, match="name a folder that `placebench compare` or `lab perfload` made"):
        results.load(tmp_path)


def test_a_run_holds_what_was_finished(tmp_path: Path) -> None:
    """A run that stopped after its first pass has that pass and nothing else."""
    HEAD.save(tmp_path / "run.json")
    LOADED.save(tmp_path / "locust-naive-closed.json")

    run = results.load(tmp_path)

    assert run.closed == {"naive": LOADED}
    assert (run.open, run.counted, run.blocks, run.profile("naive")) == ({}, {}, [], None)


def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    """Blocks are appended; whole lines are read, half a line is not."""
    HEAD.save(tmp_path / "run.json")
    append_lines(tmp_path / "blocks.jsonl", [block(0)])
    append_lines(tmp_path / "blocks.jsonl", [block(1)])
    with (tmp_path / "blocks.jsonl").open("a") as file:
        file.write('{"replicate": 2, "qu')

    assert results.load(tmp_path).blocks == [block(0), block(1)]
