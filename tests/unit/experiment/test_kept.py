"""Folders of runs: whose they are, and what a run that goes on has to be asked again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placebench.errors import RunFolderError
from placebench.experiment.records import RunHead
from placebench.experiment.run_folder import KeptHead, claim_folder, same_question

HEAD = RunHead(
    name="x",
    started_at="2026-11-20T10:00:00+00:00",
    status="complete",
    request="/x",
    topology="nested-perfload",
    trees=5,
    seed=1,
    variants=["naive"],
    receipt={},
    manifest={},
    settings={"repeats": 5, "points": [{"variant": "naive", "latency_ms": 0.5 * number} for number in range(99)]},
    same_responses={},
)


def test_a_run_wants_a_folder_of_its_own(tmp_path: Path) -> None:
    """Neither a file nor a folder with something in it."""
    (tmp_path / "file").write_text("")

    with pytest.raises(RunFolderError, match=r"/file is a file, a run wants a folder of its own: name another"):
        claim_folder(tmp_path / "file")
    with pytest.raises(RunFolderError, match="is not empty, a run wants a folder of its own"):
        claim_folder(tmp_path)


def test_another_question_is_told_in_short(tmp_path: Path) -> None:
    """Only what differs, and of a long list its beginning."""
    HEAD.save(tmp_path / "run.json")

    assert HEAD == same_question(tmp_path, HEAD)
    with pytest.raises(RunFolderError, match=r"a run with another settings: repeats was 5, is now 3$"):
        same_question(tmp_path, replace(HEAD, settings={**HEAD.settings, "repeats": 3}))
    with pytest.raises(RunFolderError, match=r"points was \[\{'variant': 'naive', .* …, is now \[\]$") as told:
        same_question(tmp_path, replace(HEAD, settings={**HEAD.settings, "points": []}))
    assert len(str(told.value)) < 400


def test_a_run_whose_answers_differed_does_not_go_on(tmp_path: Path) -> None:
    """What made them differ may be gone since; what was measured until then is of variants that do not do the same."""
    replace(HEAD, same_responses={"equal": False, "difference": "tuned lacks one"}).save(tmp_path / "run.json")

    with pytest.raises(RunFolderError, match=r"ended because tuned lacks one: begin a new one$"):
        same_question(tmp_path, HEAD)


def ground(**changed: Any) -> dict[str, Any]:
    """A manifest; of the machine what lasts and what is passing by."""
    machine = {"processor": "EPYC", "cores": 2, "load_average_1min": 0.3}
    return {"argv": ["a"], "code": "12ab", "packages": {"sqlalchemy": "2.1.0"}, "machine": machine, **changed}


def test_another_sitting_stands_on_the_same_ground(tmp_path: Path) -> None:
    """How it was called, the commit of the documents and the load of the moment may be others."""
    kept = KeptHead(tmp_path, HEAD)
    kept.stand_on(receipt={"digest": "d1"}, manifest=ground())
    later = ground(argv=["b"], commit="c2", machine={"processor": "EPYC", "cores": 2, "load_average_1min": 1.0})
    kept.stand_on(receipt={"digest": "d1"}, manifest=later)

    assert kept.head.manifest == later


@pytest.mark.parametrize(
    ("digest", "manifest", "told"),
    [
        ("d2", ground(), "data was d1, is now d2"),
        ("d1", ground(code="34cd"), "code was 12ab, is now 34cd"),
        ("d1", ground(packages={"sqlalchemy": "2.1.3"}), "sqlalchemy was 2.1.0, is now 2.1.3"),
        ("d1", ground(machine={"processor": "Xeon", "cores": 2}), "processor was EPYC, is now Xeon"),
    ],
)
def test_a_run_does_not_go_on_with_something_else(
    tmp_path: Path, digest: str, manifest: dict[str, Any], told: str
) -> None:
    """Other data, code, packages or machine: one verdict would be about neither; run.json stays as it was."""
    kept = KeptHead(tmp_path, HEAD)
    kept.stand_on(receipt={"digest": "d1"}, manifest=ground())

    with pytest.raises(RunFolderError, match=f"was begun on something else: {told}; begin a new run"):
        kept.stand_on(receipt={"digest": digest}, manifest=manifest)
    assert kept.head.manifest == ground()


def test_a_run_of_a_newer_format_does_not_go_on(tmp_path: Path) -> None:
    """It is named, and stays as it is."""
    newer = '{"format_version": 99, "name": "later"}'
    (tmp_path / "run.json").write_text(newer)

    with pytest.raises(RunFolderError, match=r"run\.json: format 99 was written by a newer placebench"):
        same_question(tmp_path, HEAD)
    assert (tmp_path / "run.json").read_text() == newer
