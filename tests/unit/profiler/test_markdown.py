"""Recordings and differences as Markdown: what costs most is first, and no text of a program becomes markup."""

import re
from pathlib import Path

from placebench.profiler import Recording, Statement
from placebench.profiler.model.statement import Caller
from placebench.profiler.output.markdown import code, difference_markdown, recording_markdown

ROOT = Path("/repository")
HOSTILE = "</td><script>alert(1)</script> | ` **bold** [link](http://x)"


def statement(sql: str, fingerprint: str, seconds: float, line: int = 7) -> Statement:
    """One execution at a line of the repository."""
    return Statement(
        sql, fingerprint, 0.0, execute_s=seconds, row_count=1, caller=Caller("/repository/shop/views.py", line, "view")
    )


def test_figures_findings_and_statements_are_in_the_order_of_their_cost() -> None:
    """Of two requests: means, the line from the repository's root on, and what to do."""
    loop = [statement("SELECT * FROM item WHERE id = ?", "f", 0.001) for _ in range(6)]
    slow = statement("SELECT count(*) FROM orders", "g", 0.05, line=9)
    each = Recording("GET /orders", "full", statements=[*loop, slow], elapsed_s=0.1, sql_s=0.056)

    text = recording_markdown(Recording.merge([each, each]), root=ROOT)

    assert text.startswith(
        "## GET /orders\n\n**100 ms**, mean of 2 requests, SQL 56.0 ms, Python 44.0 ms.\n7 statements"
    )
    assert "1. **n+1** `shop/views.py:7 view`: 6 times in one request" in text
    assert "\n   → load all at once" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 5", "| 6"))]
    assert rows == [
        "| 50.0 ms | 1 | 1 | `shop/views.py:9 view` | `SELECT count(*) FROM orders` |",
        "| 6.00 ms | 6 | 6 | `shop/views.py:7 view` | `SELECT * FROM item WHERE id = ?` |",
    ]


def test_what_ran_or_not_is_before_what_took_longer() -> None:
    """The times of two recordings differ by chance; a statement that is gone does not."""
    same, gone = statement("SELECT 1", "f", 0.5), statement("SELECT 2", "g", 0.001)
    before = Recording("before", "full", statements=[same, gone], elapsed_s=1.0)
    after = Recording("after", "full", statements=[statement("SELECT 1", "f", 0.1)], elapsed_s=0.5)

    text = difference_markdown(before.diff(after))

    rows = [line for line in text.splitlines() if line.startswith(("| gone", "| same"))]
    assert rows == [
        "| gone | 1 → 0 | 1.00 ms → 0 s (−100 %) | `SELECT 2` |",
        "| same | 1 | 500 ms → 100 ms (−80 %) | `SELECT 1` |",
    ]
    assert "| elapsed | 1.00 s → 500 ms (−50 %) |" in text


def test_no_text_becomes_markup_or_ends_a_cell() -> None:
    """Names, notes and statements are a program's."""
    recording = Recording(HOSTILE, "full", statements=[statement(HOSTILE, "f", 0.1)], notes=(HOSTILE,), elapsed_s=1.0)

    text = recording_markdown(recording, root=ROOT)

    assert "<script" not in text
    assert "**bold**" not in text
    assert re.search(r"(?<!\\)\]\(http", text) is None
    row = next(line for line in text.splitlines() if line.startswith("| 100 ms"))
    assert row.count("|") == 6
    assert code("a `b` | c") == "<code>a &#96;b&#96; &#124; c</code>"


def test_long_lists_are_cut_and_say_so() -> None:
    """Ten of 12 statements."""
    statements = [statement(f"SELECT {number}", f"{number}", 0.1) for number in range(12)]

    assert "And 2 more statements." in recording_markdown(Recording("r", "full", statements=statements), root=ROOT)
