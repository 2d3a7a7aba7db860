"""`placebench doctor`: what it says of this Python."""

import pytest

from placebench.commands import doctor
from placebench.profiler.capture import external_sampler, sampling_thread


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
    assert found.well
