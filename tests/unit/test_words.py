"""Home-made words do not come back: where the field has a standard term, documentation, help and reports use it."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_parsers import command_parsers

from placebench.cli import parser

TOP = Path(__file__).parents[2]

WORDS = {
    r"answer(s|ed|ing)?|who answers": "response, served by",
    r"ask(s|ed|ing)?": "request(ed)",
    r"ladders?|rungs?": "cumulative steps, step",
    r"third ways?|detours?": "alternative implementation",
    r"among the others": "leave-one-out",
    r"(?<!\*)arms?": "variant",
    r"ledgers?": "results table",
    r"it was said|old advice": "hypothesis and result",
    r"gauge[sd]?": "latency breakdown",
    r"accounted for": "lost-write check",
    r"headlines?": "published figures, reference request or summary line",
    r"turnarounds?": "round trip",
    r"hops?": "proxies in between",
    r"slow links?|(over|on) (a|the) link": "network emulation, latency",
    r"looks(?! like)": "interim analyses; samples",
    r"could have seen": "minimum detectable effect (MDE)",
    r"call(s|ed)? (them|identical programs) different": "false positives (A/A)",
    r"cannot (tell|be told)": "inconclusive",
    r"does not count|do not count": "discarded, invalid",
    r"times (less|fewer)": "−77 % (4.3×)",
    r"quantiles?": "percentile",
    r"(least|lowest) to (most|highest)": "range (min–max)",
    r"(closed|open) load": "closed-loop, open-loop load",
    r"(?<!garbage )(?<!OpenTelemetry )(?<!OTLP )collector": "garbage collector (GC)",
    r"(?<!mode )flames?(?! graph| laid-over)": "flame graph",
    r"own time": "self time",
    r"dear(er|est)?": "expensive",
    r"own stamps": "profiler overhead",
    r"rows again": "redundant fetch",
    r"compiled again(?! for)": "statement-cache miss",
    r"slow pool": "connection-pool wait",
    r"wrong estimates?": "row-estimate error",
    r"used clouds?|so full of": "utilization",
    r"clouds?": "inventory data set",
    r"pictures?": "in-memory index; image",
    r"shapes?": "the variant dedup; distinct tree, structure",
    r"readers stand": "registered readers",
    r"spikes?|torn": "warm-up; truncated or corrupt lines",
    r"sharing lost|lost sharing": "memory un-shared by copy-on-write",
    r"the family|family of (processes|workers)": "process tree",
    r"sittings?|standing|moods?": "session; persistent; noise, drift",
    r"houses?|rooms?|doors?|key pieces?": "package, modules, public API, main class",
    r"work beside": "existing server, on which scratch databases are created",
    r"held (to|against)": "checked against, compared with",
    r"told|tells? of|tells": "reported, says",
    r"stands?(?! for)": "is",
    r"bears?|borne|dealt|mend(s|ed|ing)?": "has; paid, assigned, repaired",
    r"in words|for eyes": "as text, human-readable",
}
"""What is not said, and what is said instead."""


def prose(markdown: str) -> str:
    """The text of a page without code, addresses and comments; lines stay where they are."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    markdown = re.sub(r"^```.*?^```|<!--.*?-->|^---\n.*?^---$", blank, markdown, flags=re.MULTILINE | re.DOTALL)
    markdown = re.sub(r"^(?: {4,}|\t)(?![*-] |\d+\. ).*$", "", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"\n +", "\n", markdown)
    return re.sub(r"``[^`]+``|`[^`]*`|\]\([^)]*\)|https?://\S+", " ", markdown)


def pages() -> Iterator[tuple[str, str]]:
    """Each Markdown file of the repository that a reader sees, and its prose."""
    for path in (
        *TOP.glob("*.md"),
        *(TOP / "docs").rglob("*.md"),
        *TOP.glob("[lps]*/README.md"),
        *TOP.glob("examples/*/README.md"),
    ):
        yield str(path.relative_to(TOP)), prose(path.read_text(encoding="utf-8"))


def help_texts() -> Iterator[tuple[str, str]]:
    """Each command, and the help that it prints, without the values that an option may have."""
    for name, command in {"placebench": parser(), **command_parsers(parser())}.items():
        yield name, re.sub(r"\{[^}]+\}|\(default:\s\w+\)", " ", command.format_help())


def messages() -> Iterator[tuple[str, str]]:
    """Each text in the code that is neither documentation nor SQL, without what is in backticks."""
    for path in (TOP / "placebench").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        texts = {each for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
        for each in texts - docstrings:
            if " " in each.value and not re.search("SELECT|CREATE", each.value):
                yield f"{path.relative_to(TOP)}:{each.lineno}", re.sub(r"`[^`]*`|default: \w+", " ", each.value)


def templates() -> Iterator[tuple[str, str]]:
    """Each template of a page, and its text without tags and expressions."""
    for path in (TOP / "placebench").rglob("templates/**/*.html"):
        code = r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<(style|script).*?</\1>|<[^>]+>"
        yield str(path.relative_to(TOP)), re.sub(code, " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("texts", [pages, help_texts, messages, templates])
def test_standard_terms(texts: Callable[[], Iterator[tuple[str, str]]]) -> None:
    """No home-made word: each one found is a line with its place and the standard term."""
    found = []
    for place, text in texts():
        for word, standard in WORDS.items():
            pattern = rf"(?<![\w-])(?:{word})(?![\w-])".replace(" ", r"\s")  # lines break between words
            for match in re.finditer(pattern, text, re.IGNORECASE):
                found.append(f"{place}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: {standard}")

    assert found == []
