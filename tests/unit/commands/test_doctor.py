"""`placebench doctor`: what it says of this Python."""

import pytest

from placebench.commands import doctor
from placebench.errors import MissingExtraError
from placebench.lab.variants import LaboratoryVariants
from placebench.profiler.capture import external_sampler, sampling_thread
from placebench.runtime import uwsgi


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            (3, 11, 2),
            "ok        profiler    estimates Python's time by a sampling thread: Python 3.11.2 can crash under a ",
        ),
        ((3, 11, 3), "ok        profiler    samples Python's stacks by a profile function"),
    ],
)
def test_it_says_how_python_is_profiled(
    version: tuple[int, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.0 to 3.11.2 work, and what that means for the flame graphs is told."""
    defect = sampling_thread.profile_function_defect(version)
    monkeypatch.setattr(sampling_thread, "profile_function_defect", lambda: defect)

    assert doctor._line(doctor._profiler()).startswith(expected)


def test_it_says_whether_py_spy_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing without it: one mode needs it."""
    monkeypatch.setattr(external_sampler.sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")

    found = doctor._sampler()

    assert doctor._line(found).startswith("optional  sampler     py-spy is not installed: ")
    assert found.ok


@pytest.fixture
def no_uwsgi(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without uWSGI."""

    def missing(python: object = None) -> str:
        raise MissingExtraError("no command uwsgi: pip install 'placebench[bench]'")

    monkeypatch.setattr(uwsgi, "uwsgi_program", missing)


@pytest.mark.usefixtures("no_uwsgi")
def test_gunicorn_stands_in_for_uwsgi() -> None:
    """It serves each variant of the reference service and the control, and one line says so."""
    line = doctor._line(doctor._uwsgi())

    assert line.startswith("optional  uWSGI       no uWSGI is installed for Python 3.")
    assert line.endswith(": gunicorn serves instead")
    assert {LaboratoryVariants().find(name).server for name in ("naive", "tuned", "dedup", "cached", "noop")} == {
        "gunicorn"
    }


@pytest.mark.usefixtures("no_uwsgi")
def test_a_package_that_is_missing_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyuwsgi is one of the extra's packages up to Python 3.14, unless its program is there; none from 3.15 on."""
    requirements = [
        "jinja2>=3.1",
        "psutil>=7; extra == 'bench'",
        "pyuwsgi>=2; (python_version < '3.15') and extra == 'bench'",
        "mcp>=2; extra == 'mcp'",
    ]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda _: requirements)
    monkeypatch.setattr(doctor, "_installed", lambda name: name == "psutil")
    seen = []
    for version in ((3, 14, 10), (3, 15, 2)):
        monkeypatch.setattr(doctor.sys, "version_info", version)
        found = doctor._packages()
        seen.append((found.ok, found.seen.partition(" of the extra")[0], found.advice.partition(";")[0]))

    assert seen == [(False, "1 of 2", "no pyuwsgi"), (True, "1 of 1", "")]
