"""Child processes that are spoken to in JSON lines."""

import sys
from pathlib import Path

import pytest

from placebench.errors import LoadError
from placebench.runtime.line_process import line_process
from placebench.runtime.supervisor import ChildSpec

DOUBLES = """
from placebench.runtime.line_process import serve_lines
serve_lines(lambda number: {"double": 2 * number})
"""
DIES = "import sys; print('no room left', file=sys.stderr); sys.exit(3)"


def spec(code: str, tmp_path: Path) -> ChildSpec:
    """A Python that runs *code*."""
    return ChildSpec(name="child", argv=[sys.executable, "-c", code], log=tmp_path / "log", pipes=True)


@pytest.mark.processes
def test_each_line_has_a_response(tmp_path: Path) -> None:
    """The keys of an order are the arguments of the function in the child."""
    with line_process(spec(DOUBLES, tmp_path), gone="it is gone") as process:
        doubles = [process.call({"number": number})["double"] for number in (1, 21)]

    assert doubles == [2, 42]


@pytest.mark.processes
def test_a_process_that_is_gone_is_one_line_with_its_log(tmp_path: Path) -> None:
    """Whether it ends before the order or instead of an answer."""
    with line_process(spec(DIES, tmp_path), gone="it is gone") as process:
        for _ in range(2):
            with pytest.raises(LoadError, match=r"^it is gone; no room left$"):
                process.call({"number": 1})
