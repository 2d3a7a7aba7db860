"""The Python in the documentation runs as it stands, and its commands are ones that there are."""

import re
import shlex
from pathlib import Path

import pytest

from placebench.cli import parser
from placebench.postgres import Server

DOCS = Path(__file__).parents[2] / "docs"


def test_the_api_page_runs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/api.md are one script, and its assertions hold."""
    monkeypatch.setenv("PLACEBENCH_DATABASE_URL", server.url)
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "api.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    script = "\n".join(blocks)

    exec(compile(script, "docs/api.md", "exec"), {})

    assert len(blocks) >= 6


@pytest.mark.parametrize("page", ["link.md", "workers.md"])
def test_the_commands_of_a_question_can_be_asked(page: str) -> None:
    """Each line of the page that calls placebench parses; what they do is run by the tests of each command."""
    commands = re.findall(r"^    placebench (.*)$", (DOCS / page).read_text(), flags=re.MULTILINE)

    asked = {parser().parse_args(shlex.split(command)).command for command in commands}

    assert {page.removesuffix(".md")} == asked
    assert len(commands) >= 3
