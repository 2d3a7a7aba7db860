"""`python -m placebench`: the command line; `run` is the entry of an archive of `python -m zipapp`."""

import sys
from typing import NoReturn

from placebench.cli import main


def run() -> NoReturn:
    """Run one command, and end the process with its exit code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
