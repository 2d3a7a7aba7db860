"""`placebench mcp`: results and comparisons for agents, by the Model Context Protocol on stdin and stdout."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from placebench.commands import Command
from placebench.errors import MissingExtraError


def _configure(_: ArgumentParser) -> None:
    """It has no options."""


def _run(_: Namespace) -> int:
    """Serve until stdin is closed."""
    try:
        from placebench.commands.mcp_server import make_server
    except ModuleNotFoundError as error:
        raise MissingExtraError("`placebench mcp` needs its extra: pip install 'placebench[mcp]'") from error
    make_server(Path.cwd()).run()
    return 0


COMMANDS = {"mcp": Command(_configure, _run)}
