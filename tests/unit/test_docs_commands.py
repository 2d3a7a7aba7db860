"""Every command in the documentation can be asked, its options are there, and every link leads somewhere."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from placebench.cli import parser
from placebench.experiment.matrices import matrix_named
from placebench.experiment.matrix import combine

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
QUESTIONS = {
    "matrix": "matrix",
    "workers": "workers",
    "link": "link",
    "telemetry": "gauge",
    "losses": "load",
    "headline": "headline",
}
"""The page of each question, and the command that answers it."""
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```|^((?: {4}.*\n)+)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?: {4})?placebench ((?:.*\\\n)*.*)$", re.MULTILINE)
IN_LINE = re.compile(r"`placebench ([a-z]+)((?: [^`]*)?)`")
OPTION = re.compile(r"^\| `(--[a-z-]+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each line that calls placebench in a block of the page."""
    for block in BLOCK.findall(page.read_text()):
        for found in COMMAND.findall("".join(block)):
            yield shlex.split(found.replace("\\\n", " ").removesuffix("&"), comments=True)


def parsers(made: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of its commands, by name."""
    groups = (each for each in made._actions if isinstance(each, argparse._SubParsersAction))
    return {name: each for group in groups for name, each in group.choices.items()}


def options(command: str) -> set[str]:
    """Those of one command, and of what it can do, such as `db clean`."""
    asked = parsers(parser())[command]
    return {option for each in (asked, *parsers(asked).values()) for option in each._option_string_actions}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_can_be_asked(page: Path) -> None:
    """Each line that calls placebench parses, and what a sentence calls has its options."""
    for command in commands(page):
        if command[0] != "db":  # start|url|stop
            assert parser().parse_args(command).command == command[0]
    for name, rest in IN_LINE.findall(page.read_text()):
        assert {word for word in re.findall(r"--[a-z-]+", rest) if word != "--"} <= options(name)
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize(("page", "command"), QUESTIONS.items())
def test_a_question_has_its_page(page: str, command: str) -> None:
    """Its command, its options, a picture, how to read it, and what it cannot say."""
    text = (TOP / "docs" / f"{page}.md").read_text()

    assert command in {asked[0] for asked in commands(TOP / "docs" / f"{page}.md")}
    assert set(OPTION.findall(text)) <= options(command)
    assert re.search(r"^!\[.+\]\([a-z/]+\.(png|svg)\)$", text, re.MULTILINE)
    assert re.search(r"^## .*cannot say$", text, re.MULTILINE)


def test_the_matrices_of_the_documentation_can_be_run(tmp_path: Path) -> None:
    """The files in docs/matrices, and the one in the page."""
    (written,) = re.findall(r"^```toml\n(.*?)^```", (TOP / "docs" / "matrix.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.toml").write_text(written)

    for path in (*(TOP / "docs" / "matrices").glob("*.toml"), tmp_path / "mine.toml"):
        assert {None} == {combination.reason for _, combination in combine(matrix_named(str(path)))}
