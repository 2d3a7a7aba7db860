"""`placebench lab files`: print where this installation has the folders that are opened by path."""

import json
from argparse import ArgumentParser
from dataclasses import dataclass

from placebench.commands import Command, options
from placebench.commands.output import print_result
from placebench.paths import profiles_folder, resource_folder

_FOLDERS = ("loaders", "locustfiles", "profiles", "schema")


@dataclass(frozen=True)
class FilesOptions:
    """The options of `placebench lab files`."""

    output: options.OutputOptions
    folder: str | None


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        choices=_FOLDERS,
        metavar="NAME",
        help="print the path of this folder alone, for use in a command (default: all, with their names): "
        f"{', '.join(_FOLDERS)}",
    )
    options.add_output(parser)


def _run(given: FilesOptions) -> int:
    """Print the absolute paths; that of profiles, which runs make on first use, may not exist yet."""
    names = (given.folder,) if given.folder else _FOLDERS
    paths = {name: str(profiles_folder() if name == "profiles" else resource_folder(name)) for name in names}
    if given.output.json:
        print_result(json.dumps(paths))
    elif given.folder:
        print_result(paths[given.folder])
    else:
        print_result("\n".join(f"{name:<12}{path}" for name, path in paths.items()))
    return 0


COMMANDS = {"lab files": Command(_configure, _run, options=FilesOptions)}
