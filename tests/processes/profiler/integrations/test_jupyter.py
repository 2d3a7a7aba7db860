"""A recording in a real notebook, run by a kernel."""

import subprocess
import sys

import pytest

pytest.importorskip("ipykernel")
nbclient = pytest.importorskip("nbclient")

CELL = """
from sqlalchemy import create_engine, text
from placebench import SqlProfiler

engine = create_engine("sqlite://")
with SqlProfiler(engine).record("report") as recording, engine.connect() as connection:
    for number in range(6):
        connection.execute(text("select :n as \\"<b>\\""), {"n": number}).all()
recording
"""


def test_a_recording_is_shown_below_its_cell() -> None:
    """As its page in a frame, escaped; as text, the summary."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()

    (output,) = notebook.cells[0].outputs
    assert {"text/html", "text/plain"} == set(output.data)
    assert output.data["text/html"].startswith('<iframe srcdoc="&lt;!doctype html')
    assert output.data["text/html"].count("<") == 2
    assert "n+1" in output.data["text/html"]
    assert output.data["text/plain"].startswith("report: ")


CELLS = (
    """import sqlite3
from placebench import SqlProfiler
from placebench.profiler.capture.call_sites import is_application_file
profiler = SqlProfiler()
connection = sqlite3.connect(":memory:")""",
    """def load(number):
    return connection.execute("select ?", (number,)).fetchall()""",
    """with profiler.record("report", MODE) as recording:
    for number in range(6):
        load(number)
    connection.execute("select 'here'")
(finding,) = recording.findings()
print(finding.place, recording.statements[-1].caller, is_application_file(load.__code__.co_filename), sep="; ")""",
)
PLACE = "cell 2, line 2 load; cell 3, line 4; True"


@pytest.mark.parametrize("mode", ["full", "flame"])
def test_a_place_in_a_notebook_is_a_line_of_its_cell(mode: str) -> None:
    """The cell that defines the function, by its number, and not a file of the kernel's."""
    import nbformat

    cells = [nbformat.v4.new_code_cell(cell.replace("MODE", repr(mode))) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()

    (output,) = notebook.cells[-1].outputs
    assert output.text.strip() == PLACE


def test_a_place_in_ipython_is_a_line_of_its_cell() -> None:
    """As in a notebook; there its code has another kind of name."""
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {CELLS!r}:
    shell.run_cell(cell.replace("MODE", "'full'"), store_history=True).raise_error()
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)

    assert done.stdout.strip() == PLACE, done.stderr
