"""`placebench mcp`: results and comparisons for agents, by the Model Context Protocol on stdin and stdout."""

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

from placebench.commands import Command
from placebench.errors import MissingExtraError


@dataclass(frozen=True)
class McpOptions:
    """The options of `placebench mcp`: none."""


def _configure(_: ArgumentParser) -> None:
    pass


def _run(_: McpOptions) -> int:
    try:
        from placebench.commands.mcp_server import make_server
    except ModuleNotFoundError as error:
        raise MissingExtraError("`placebench mcp` needs its extra: pip install 'placebench[mcp]'") from error
    make_server(Path.cwd()).run()
    return 0


COMMANDS = {"mcp": Command(_configure, _run, options=McpOptions)}
