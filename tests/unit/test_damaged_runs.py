"""Run folders that are damaged or made to hurt: each is read, or refused in one line, and never a bug of ours."""

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_experiment import write_experiment
from fake_run import FakeRun, write_inside, write_run
from fake_survey import POINTS, write_search, write_survey
from hostile import DEEP, FILES, GONE, VALUES, places, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st

from placebench.cli import main

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
KINDS = ("perfload", "experiment", "search", *POINTS)
COMMANDS = (("open", "--json"), ("export",), ("diff",))
VARIANTS = (None, 3, 2.5, {"a": 1}, [], [None], "naive", [""], ["../../etc/passwd"], ["x" * 300], DEEP, GONE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind that nothing is wrong with."""
    folder = tmp_path_factory.mktemp("runs")
    few = FakeRun(variants=("naive", "naive+rows", "tuned"), requests=20)
    made = {kind: write_survey(folder / kind, kind) for kind in POINTS}
    made["perfload"] = write_inside(write_run(folder / "perfload", few))
    made["experiment"] = write_experiment(folder / "experiment", replicates=6)
    made["search"] = write_search(folder / "search")
    return made


def documents(folder: Path) -> list[str]:
    """The names of the files in it that are read."""
    read = (path.name for path in folder.iterdir() if path.suffix in (".json", ".jsonl", ".pyisession"))
    return sorted(name for name in read if "speedscope" not in name)


def ended(*arguments: str) -> tuple[int, list[str]]:
    """The exit code of a command, and the lines that it left on stderr."""
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        code = main(arguments)
    return code, told.getvalue().splitlines()


def spoil(file: Path, value: Any, *place: str | int) -> None:
    """Put *value* at this place of the document, or of the first line."""
    first, end, rest = file.read_text().partition("\n")
    file.write_text(spoiled(json.loads(first), place, value) + end + rest)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_run_is_read(kind: str, runs: dict[str, Path]) -> None:
    """What the other tests spoil is right before."""
    assert 0 == ended("report", "open", str(runs[kind]))[0]


def test_a_run_of_another_version_that_cannot_be_read_names_it(runs: dict[str, Path], tmp_path: Path) -> None:
    """A setting that 0.2.0 did not write is no damage: the line says which placebench reads the folder."""
    folder = shutil.copytree(runs["saturation"], tmp_path / "run")
    spoil(folder / "run.json", GONE, "settings", "repeats")
    spoil(folder / "run.json", {"placebench": "0.2.0"}, "manifest")

    code, (line,) = ended("report", "open", str(folder))

    assert code == 2
    assert "settings: repeats is missing; placebench 0.2.0 wrote it, and this is " in line


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_spoiled_run_is_read_or_refused(
    data: st.DataObject, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever stands at whatever place of whatever file: exit code 0, or 2 and one line that names the file."""
    kind = data.draw(st.sampled_from(KINDS))
    whole = runs[kind]
    name = data.draw(st.sampled_from(documents(whole)))
    place = data.draw(st.sampled_from(list(places(json.loads((whole / name).read_text().partition("\n")[0])))))
    value = data.draw(st.sampled_from(VALUES))
    command = data.draw(st.sampled_from(COMMANDS))
    folder = shutil.copytree(whole, tmp_path_factory.mktemp("spoiled") / "run")
    spoil(folder / name, value, *place)
    if command == ("diff",):
        command = ("diff", str(whole)) if kind in ("perfload", "experiment") else ("open", "--json")
    code, said = ended("report", *command, str(folder))

    assert code in (0, 2), "\n".join(said)
    if code == 2:
        (line,) = said
        assert f"{folder}/{name}" in line


@pytest.mark.parametrize("content", FILES)
@pytest.mark.parametrize("kind", ["perfload", "network", "search"])
def test_a_spoiled_file_is_refused(kind: str, content: bytes, runs: dict[str, Path], tmp_path: Path) -> None:
    """A file that is not JSON at all, each in its turn; one without a single whole line is one without lines."""
    for name in documents(runs[kind]):
        folder = shutil.copytree(runs[kind], tmp_path / name)
        (folder / name).write_bytes(content)
        code, said = ended("report", "open", str(folder))

        if name.endswith(".jsonl") and content == b"":
            assert code == 0
        else:
            assert (code, len(said)) == (2, 1), said
            assert f"{folder}/{name}" in said[0]


@pytest.mark.parametrize("value", VARIANTS, ids=str)
@pytest.mark.parametrize("command", [("open",), *COMMANDS[:2]], ids=str)
def test_variants_that_are_none(value: Any, command: tuple[str, ...], runs: dict[str, Path], tmp_path: Path) -> None:
    """What a comparison is about is a list of names that files are called after, at least one."""
    folder = shutil.copytree(runs["perfload"], tmp_path / "run")
    spoil(folder / "run.json", value, "variants")

    code, said = ended("report", *command, str(folder))
    assert (code, len(said)) == (2, 1)
    assert f"{folder}/run.json: " in said[0]


@pytest.mark.parametrize(
    "command",
    ["compare naive tuned", *(f"lab study {name}" for name in ("network", "workers", "breakdown", "published"))],
)
def test_a_damaged_run_is_not_resumed(command: str, runs: dict[str, Path], tmp_path: Path) -> None:
    """It is refused before a PostgreSQL is looked for."""
    folder = shutil.copytree(runs["perfload"], tmp_path / "run")
    for value in VARIANTS:
        shutil.copy(runs["perfload"] / "run.json", folder)
        spoil(folder / "run.json", value, "variants")
        code, said = ended(*command.split(), "--resume", "--out", str(folder), "--server", NOWHERE)

        assert (code, len(said)) == (2, 1)
        assert f"{folder}/run.json: " in said[0]
