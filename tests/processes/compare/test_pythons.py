"""Pythons of the machine, and the environment that each gets."""

import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import placebench
from placebench.compare.what import pythons
from placebench.errors import PlacebenchError
from placebench.lab.studies.matrix_plan import Job, Matrix, matrix_named
from placebench.lab.studies.matrix_run import combine


def fake_python(folder: Path, version: str) -> Path:
    """A program that says that it is this Python."""
    folder.mkdir(parents=True)
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\necho "{version} {path}"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pythons 3.9.1 and 3.12.9 on PATH, 3.13.1 and 3.13.1t in pyenv, 3.12.10 in uv, and a shim."""
    fake_python(tmp_path / "old", "3.9.1")
    fake_python(tmp_path / "bin", "3.12.9")
    fake_python(tmp_path / "shims", "3.11.1")
    fake_python(tmp_path / "pyenv" / "versions" / "3.13.1" / "bin", "3.13.1")
    fake_python(tmp_path / "pyenv" / "versions" / "3.13.1t" / "bin", "3.13.1t")
    fake_python(tmp_path / "data" / "uv" / "python" / "cpython" / "bin", "3.12.10")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:{tmp_path / 'shims'}:{tmp_path / 'bin'}:/nowhere:/usr/bin:/bin")
    monkeypatch.setattr(pythons, "_NAME", pythons.re.compile("python3"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def test_every_python_from_3_11_on(machine: Path) -> None:
    """Oldest first, by numbers and not by letters; those without a GIL have a name of their own."""
    found = [(version, path) for version, path in pythons.find_pythons().items() if path.is_relative_to(machine)]

    assert [
        ("3.12.9", machine / "bin" / "python3"),
        ("3.12.10", machine / "data" / "uv" / "python" / "cpython" / "bin" / "python3"),
        ("3.13.1", machine / "pyenv" / "versions" / "3.13.1" / "bin" / "python3"),
        ("3.13.1t", machine / "pyenv" / "versions" / "3.13.1t" / "bin" / "python3"),
    ] == found


@pytest.mark.usefixtures("machine")
def test_every_is_each_by_its_version(tmp_path: Path) -> None:
    """What a plan calls "every" is in the run as the versions that were found, those named beside it too."""
    path = tmp_path / "mine.toml"
    path.write_text("[axes]\npython = ['every', 'this']\n[[jobs]]\nrequests = 1\ntrees = 1")

    values = list(matrix_named(str(path)).axes["python"])

    assert ["3.12.9", "3.12.10", "3.13.1", "3.13.1t", "this"] == [
        each for each in values if not each.startswith("3.11")
    ]


def test_pythons_without_a_gil_are_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how they are measured; where there is none, that none is."""
    there = pythons.free_threaded()
    monkeypatch.setenv("PYENV_ROOT", str(machine / "nowhere"))

    assert "free-threaded Python 3.13.1t: " in there
    assert 'python = ["3.13.1t"]' in there
    assert pythons.free_threaded().startswith("no free-threaded Python")


def test_a_python_that_is_missing_is_one_line() -> None:
    """The combination is impossible, and says how to get that Python."""
    ((_, found),) = combine(Matrix("m", "?", {"python": ["3.99"]}, {}, [Job(1, 1)]))

    assert found.reason == "no Python 3.99 here: pyenv install 3.99, or uv python install 3.99"


def test_an_environment_has_this_placebench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds what is named, in that version, and is made once; what cannot be installed is named."""
    with zipfile.ZipFile(tmp_path / "pip-9.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr("mine.py", "")
        wheel.writestr("pip-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: pip\nVersion: 9.9\n")
        wheel.writestr("pip-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("pip-9.9.dist-info/RECORD", "")
    monkeypatch.delenv("UV_CONSTRAINT", raising=False)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pythons, "find_pythons", lambda: {platform.python_version(): Path(sys.executable)})
    monkeypatch.setattr(pythons, "_service_packages", lambda: ["absent==1"])
    with pytest.raises(PlacebenchError, match=r"^the service cannot be installed for .*absent==1"):
        pythons.python_environment(platform.python_version())

    monkeypatch.setattr(pythons, "_service_packages", list)
    made = pythons.python_environment(platform.python_version())
    again = pythons.python_environment(platform.python_version())
    code = "import importlib.util, mine, sys; print(importlib.util.find_spec('placebench').origin, sys.prefix)"
    said = subprocess.run([made, "-c", code], capture_output=True, text=True, check=True, cwd="/", env={}).stdout

    assert made == again
    package, prefix = said.split()
    assert (Path(package).resolve(), prefix) == (Path(placebench.__file__), str(made.parents[1]))
