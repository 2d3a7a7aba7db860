"""The man page: it has what --help has, and groff formats it without a warning."""

import argparse
import shutil
import subprocess

import pytest
from command_parsers import command_parsers

from placebench import __version__
from placebench.cli import main, parser
from placebench.commands.man_page import man_page


def test_the_man_page_names_each_command_and_each_option() -> None:
    """Those of the parser of --help, each below the heading of its command."""
    sections = man_page(parser(), __version__).replace(r"\-", "-").split("\n.SS ")
    by_command = {section.partition("\n")[0]: section for section in sections[1:]}

    assert len(by_command) > 40
    for name, command in command_parsers(parser()).items():
        if any(isinstance(action, argparse._SubParsersAction) for action in command._actions):
            continue
        text = by_command[f"placebench {name}"]
        missing = [
            option
            for action in command._actions
            for option in action.option_strings
            if action.help != argparse.SUPPRESS and rf"\fB{option}\fR" not in text
        ]
        assert missing == []


def test_the_man_page_is_ascii() -> None:
    """A terminal without UTF-8 shows it whole, too."""
    assert man_page(parser(), __version__).isascii()


def test_print_man_page_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """And ends with exit code 0."""
    with pytest.raises(SystemExit) as ended:
        main(["--print-man-page"])

    assert (ended.value.code, capsys.readouterr().out.rstrip("\n")) == (0, man_page(parser(), __version__))


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_groff_has_no_warning() -> None:
    """Of all its kinds, at the width of a terminal; the options are in the formatted text."""
    command = ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-rLL=100n", "-P-c", "-P-b", "-P-u"]
    done = subprocess.run(
        command, input=man_page(parser(), __version__), capture_output=True, text=True, check=True, encoding="utf-8"
    )

    assert done.stderr == ""
    assert "placebench profile run" in done.stdout
    assert "--gate" in done.stdout.replace("‐", "-").replace("−", "-")
