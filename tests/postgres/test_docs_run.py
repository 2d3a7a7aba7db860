"""The Python in the documentation runs as it stands; its commands: tests/unit/test_docs.py."""

import re
from pathlib import Path

import pytest

from placebench.runtime.postgres import Server

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_runs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/lab/python.md are one script, and its assertions hold."""
    monkeypatch.setenv("PLACEBENCH_DATABASE_URL", server.url)
    blocks = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "lab" / "python.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    script = "\n".join(blocks)

    exec(compile(script, "docs/lab/python.md", "exec"), {})

    assert len(blocks) >= 6
