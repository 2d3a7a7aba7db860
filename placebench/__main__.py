"""`python -m placebench`: the command line; `run` is the entry of an archive of `python -m zipapp`.

placebench opens files of its own by path, so an archive is unpacked first: each into its own folder of the user's
cache, named by its digest, with what else it holds.
"""

import hashlib
import importlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NoReturn

from placebench.errors import PlacebenchError
from placebench.paths import make_folder


def run() -> NoReturn:
    """Run one command, and end the process with its exit code."""
    if not Path(__file__).exists():
        try:
            _import_unpacked(next(each for each in Path(__file__).parents if each.is_file()))
        except PlacebenchError as error:
            print(f"placebench: {error}", file=sys.stderr)  # noqa: T201
            sys.exit(error.exit_code)
    from placebench.cli import main

    sys.exit(main())


def _import_unpacked(archive: Path) -> None:
    """Unpack the archive unless that was done before, and have this process and its children import the files."""
    folder = _unpacked(archive)
    sys.path[:] = [str(folder) if Path(each) == archive else each for each in sys.path]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    above = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(folder), *(each for each in above.split(os.pathsep) if each and Path(each) != archive)]
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "placebench"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _unpacked(archive: Path) -> Path:
    """Return the folder of the archive's files, which is made whole or not at all."""
    try:
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placebench"
        folder = make_folder(cache) / f"zip-{digest[:16]}"
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix="unpacking-") as made:
                whole = Path(made, "whole")
                with zipfile.ZipFile(archive) as content:
                    content.extractall(whole)
                try:
                    whole.rename(folder)
                except OSError:
                    if not folder.is_dir():  # another process has been faster
                        raise
    except (OSError, RuntimeError, zipfile.BadZipFile, PlacebenchError) as error:
        raise PlacebenchError(
            f"{archive} cannot be unpacked: {error}: set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return folder


if __name__ == "__main__":
    run()
