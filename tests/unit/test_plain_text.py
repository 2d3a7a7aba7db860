"""Text of others is not obeyed by terminals and by readers of Markdown."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.cli import main
from placebench.plain_text import escaped, markdown, markdown_code, printable
from placebench.profiler import Recording, Statement

HOSTILE = "\x1b]0;TITLE\x07\x1b[2J\x9b31m\u202egnp.exe\r"


@given(st.text())
def test_nothing_that_is_printed_controls_a_terminal(text: str) -> None:
    """But line breaks and tabs."""
    shown = printable(text)

    assert [letter for letter in shown if unicodedata.category(letter) == "Cc" and letter not in "\n\t"] == []
    assert not {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"} & set(shown)


@given(st.text(alphabet=st.characters() | st.sampled_from("\x9b\u202e\x7f")))
def test_escaped_json_is_the_same_document(text: str) -> None:
    """Whatever its texts are."""
    shown = escaped(json.dumps([text], ensure_ascii=False))

    assert json.loads(shown) == [text]
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`cpu_s` of 2\u202f583 requests", "`cpu_s` of 2\u202f583 requests"),
        ("a | b\n| --- |", "a \\| b \\| --- \\|"),
        ("<img src=x onerror=y> @team", "&lt;img src=x onerror=y> @\u200bteam"),
        ("![x](http://y) and [z](javascript:1)", "![x]\\(http://y) and [z]\\(javascript:1)"),
        ("`a|b<c` \x1b[2J", "<code>a&#124;b&lt;c</code> \\x1b[2J"),
    ],
)
def test_nothing_in_markdown_is_markup(text: str, expected: str) -> None:
    """Cells, tags, mentions, links and images of names; code between backticks stays code."""
    assert expected == markdown(text)


@pytest.mark.processes
def test_blanks_take_linear_time() -> None:
    """A million blanks are one, in less than a second where quadratic time would be hours."""
    script = "from placebench.plain_text import markdown; assert markdown('a' + ' ' * 10**6 + chr(10) + 'b') == 'a b'; "
    script += "assert len(markdown('a' + ' ' * 10**6 + 'b')) == 10**6 + 2"

    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_code_in_a_cell_cannot_be_left() -> None:
    """A backtick in it does not end it."""
    assert markdown_code("a`<b>") == "<code>a&#96;&lt;b&gt;</code>"


@pytest.mark.parametrize("form", [[], ["--markdown"], ["--json"]])
def test_a_hostile_recording_is_shown_as_text(
    form: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its name and its SQL reach the terminal without an escape sequence."""
    recording = Recording(HOSTILE, "light")
    recording.statements = [Statement(f'SELECT a /* {HOSTILE} */ FROM "{HOSTILE}"', HOSTILE, 0.1)]
    recording.save(tmp_path / "recording.json")

    assert main(["profile", "show", str(tmp_path / "recording.json"), *form]) == 0
    printed = capfd.readouterr()
    assert printable(printed.out + printed.err) == printed.out + printed.err
