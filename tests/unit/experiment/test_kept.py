"""Folders of runs: whose they are, and what a run that goes on has to be asked again."""

from dataclasses import replace
from pathlib import Path

import pytest

from placebench.errors import RunFolderError
from placebench.experiment.kept import claim_folder, same_question
from placebench.experiment.records import RunHead

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
    same_answers={},
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
