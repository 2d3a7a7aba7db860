"""The parsers of placebench's commands, which tests of help, documentation and installation go through."""

import argparse


def command_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands and groups below *parser*, by their words, such as `db start`."""
    found: dict[str, argparse.ArgumentParser] = {}
    for group in (each for each in parser._actions if isinstance(each, argparse._SubParsersAction)):
        for name, command in group.choices.items():
            found[name] = command
            found |= {f"{name} {word}": each for word, each in command_parsers(command).items()}
    return found
