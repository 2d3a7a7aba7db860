"""Check what a release would publish: `tox -e release`; `dist/` has the checked sdist and wheel afterwards.

Builds sdist and wheel twice, from the checkout and from the sdist, and compares them byte by byte; runs twine and
check-wheel-contents on them; demands one version everywhere and a known type for all of the public API, which is what
docs/reference/api.md names. Ends with exit code 1 and the problems on stderr. build/placebench-VERSION.cdx.json is the
software bill of materials: what the package and its extras need, as the index resolves it today (CycloneDX).
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
DIST = TOP / "dist"
TOOLS = TOP / ".github" / "release-tools.txt"


def main() -> None:
    """Run every check, and name all problems."""
    shutil.rmtree(DIST, ignore_errors=True)
    build(TOP, DIST)
    problems = [*other_versions(), *differences(), *unknown_types()]
    if problems:
        sys.exit("\n".join(problems))
    files = sorted(DIST.iterdir())
    run("twine", "check", "--strict", *files)
    run("check_wheel_contents", *(each for each in files if each.suffix == ".whl"))
    print("\n".join(f"{each}: {each.stat().st_size} bytes, built twice" for each in files))
    materials = bill_of_materials(TOP / "build")
    print(f"{materials}: {len(json.loads(materials.read_text())['components'])} components")


def bill_of_materials(folder: Path) -> Path:
    """Write the dependencies of the package and of all extras, with versions and hashes, and return the file."""
    metadata = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    folder.mkdir(exist_ok=True)
    target = folder / f"placebench-{metadata['version']}.cdx.json"
    with tempfile.TemporaryDirectory() as name:  # uv writes a lock file beside the project
        project = Path(name)
        shutil.copy(TOP / "pyproject.toml", project)
        for file in ("README.md", "LICENSE"):
            shutil.copy(TOP / file, project)
        options = ["--format", "cyclonedx1.5", "--preview", "--all-extras", "--no-dev", "--no-emit-project"]
        run("uv", "export", "-q", *options, "-o", target, cwd=project)
    names = {each["name"] for each in json.loads(target.read_text())["components"]}
    required = {re.split(r"[^\w.-]", each)[0].lower() for each in metadata["dependencies"]}
    if missing := sorted(required - names):
        sys.exit(f"{target}: {', '.join(missing)} not among its components")
    return target


def run(module: str, *arguments: str | Path, cwd: Path = TOP) -> None:
    """Run a module's program, which builds with tools of known hashes; raises CalledProcessError where it fails."""
    environment = {**os.environ, "UV_CONSTRAINT": str(TOOLS)} if module == "build" and TOOLS.is_file() else None
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], cwd=cwd, env=environment, check=True)


def build(source: Path, out: Path) -> None:
    """Build sdist and, of that, wheel of the tree in *source*."""
    run("build", "--installer", "uv", "-o", out, source)


def differences() -> Iterator[str]:
    """A line for each file of dist that is not the same when built from the sdist, elsewhere and with another umask."""
    with tempfile.TemporaryDirectory() as folder:
        [sdist] = DIST.glob("*.tar.gz")
        before = os.umask(0o077)
        try:
            with tarfile.open(sdist) as archive:
                archive.extractall(folder, filter="data")
            build(Path(folder) / sdist.name.removesuffix(".tar.gz"), Path(folder) / "dist")
        finally:
            os.umask(before)
        for first in sorted(DIST.iterdir()):
            if first.read_bytes() != (Path(folder) / "dist" / first.name).read_bytes():
                yield f"{first.name}: other bytes when it is built again"


def other_versions() -> Iterator[str]:
    """A line for each place with another version than pyproject.toml."""
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    found = {
        "placebench/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## (\S+) ",
    }
    for name, pattern in found.items():
        match = re.search(pattern, (TOP / name).read_text(), re.MULTILINE)
        if match is None or match[1] != version:
            yield f"{name}: version {match and match[1]}, {version} in pyproject.toml"


def unknown_types() -> Iterator[str]:
    """A line for each symbol of the public API without a type that all type checkers agree on."""
    completed = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--ignoreexternal", "--verifytypes", "placebench"],
        cwd=sys.prefix,  # not the checkout: the installed package is what users see
        stdout=subprocess.PIPE,
        check=False,
    )
    symbols: list[Mapping[str, Any]] = json.loads(completed.stdout)["typeCompleteness"]["symbols"]
    number = 0
    for name in public_names():
        own = [each for each in symbols if f"{each['name']}.".startswith(f"{name}.")]
        if not own:
            yield f"{name}: pyright does not know it"
        for each in own:
            number += 1
            if not each["isTypeKnown"] or each["isTypeAmbiguous"]:
                yield f"{each['name']}: {'; '.join(found['message'] for found in each['diagnostics'])}"
    print(f"public API: {number} symbols")


def public_names() -> Iterator[str]:
    """The names in docs/reference/api.md, each with the module that defines it."""
    for name in re.findall(r"^::: (\S+)", (TOP / "docs" / "reference" / "api.md").read_text(), re.MULTILINE):
        module, _, last = name.rpartition(".")
        defined = getattr(import_module(module), last)
        yield f"{getattr(defined, '__module__', module)}.{last}"


if __name__ == "__main__":
    main()
