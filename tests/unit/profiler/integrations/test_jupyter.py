"""A recording in a real notebook, run by a kernel."""

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
