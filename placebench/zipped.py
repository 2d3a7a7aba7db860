"""placebench from a zip archive (`python -m zipapp`), unpacked once: other programs open its files by path.

The main function is `run_unpacked`. Each archive is unpacked into its own folder of the user's cache, named by its
digest; what an archive made by `pip install --target` holds beside placebench is unpacked with it.
"""

import hashlib
import importlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from placebench.errors import PlacebenchError
from placebench.paths import make_folder


def run_unpacked(module_file: str, argv: Sequence[str]) -> int:
    """Unpack the archive that holds a module unless that was done before, and run one command of its placebench there.

    Returns the exit code. Child processes import the same files. Raises PlacebenchError if it cannot be unpacked.
    """
    archive = next((each for each in Path(module_file).parents if each.is_file()), Path(module_file))
    folder = unpacked(archive)
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
    code: int = importlib.import_module("placebench.cli").main(argv)
    return code


def unpacked(archive: Path) -> Path:
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
