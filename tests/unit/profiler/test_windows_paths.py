r"""Files of Windows: code whose file name is C:\shop\views.py is the application's, and is named with slashes."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from placebench.profiler import SqlProfiler
from placebench.profiler.analysis.difference import relative_place
from placebench.profiler.model.files import with_slashes
from placebench.profiler.output.flame_svg import _installed_as, _library

VIEWS = r"C:\shop\views.py"
PYTHON = r"C:\Users\me\AppData\Local\Programs\Python\Python312\Lib"


def _function(file: str, source: str, **names: object) -> Callable[[], None]:
    """The function `run` of *source*, compiled as if it stood in *file*."""
    made: dict[str, object] = dict(names)
    exec(compile(source, file, "exec"), made)
    function = made["run"]
    assert callable(function)
    return function


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_the_caller_is_the_line_of_the_application(mode: str) -> None:
    """A package of site-packages is passed over, whatever separates the folders."""
    query = rf"{PYTHON}\site-packages\orm\query.py"
    profiler = SqlProfiler.for_drivers("sqlite3")
    with profiler.record("view", mode=mode) as recording, closing(sqlite3.connect(":memory:")) as connection:
        library = _function(query, "def run():\n    connection.execute('select 1')", connection=connection)
        _function(VIEWS, "\n\ndef run():\n    library()", library=library)()
    profiler.remove()

    (statement,) = recording.statements
    assert statement.caller == ("C:/shop/views.py", 4, "run")
    if recording.session is not None:
        files = {frame.split("\x00")[1] for stack, _ in recording.session.frame_records for frame in stack}
        assert "C:/shop/views.py" in files


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (VIEWS, "C:/shop/views.py"),
        (r"\\server\share\a.py", "//server/share/a.py"),
        ("/shop/odd\\name.py", "/shop/odd\\name.py"),
        ("<string>", "<string>"),
    ],
)
def test_only_paths_of_windows_change(path: str, expected: str) -> None:
    """A file of Linux may have a backslash in its name."""
    assert with_slashes(path) == expected


def test_the_standard_library_is_known_by_its_folder() -> None:
    """Its files are Python's, those of site-packages are a package's, those of a folder Lib elsewhere the user's."""
    inside = with_slashes(PYTHON)

    assert _library(f"{inside}/asyncio/tasks.py", every_package=True) == "python"
    assert _library(f"{inside}/site-packages/peewee.py", every_package=True) == "peewee"
    assert _library("C:/work/Lib/shop.py", every_package=True) == ""
    assert _installed_as(f"{inside}/asyncio/tasks.py") == "asyncio/tasks.py"


def test_a_place_is_relative_to_the_folder_it_is_imported_from() -> None:
    """Recordings of two checkouts of a program are compared by it."""
    assert relative_place("D:/b/shop/views.py", ["D:/b", "C:/Python312/Lib"]) == "shop/views.py"
    assert relative_place("E:/elsewhere/shop/views.py", ["D:/b"]) == "shop/views.py"
