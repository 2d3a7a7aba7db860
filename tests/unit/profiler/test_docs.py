"""What docs/profiler.md shows is what a reader gets."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its assertions hold, and its files are written."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "profiler.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    script = f"{block}\nengine.dispose()\n"

    exec(compile(script, "docs/profiler.md", "exec"), {})

    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.html", "before.json"]
