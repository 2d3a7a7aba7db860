"""Pack the artifact for reviewers of a paper: `tox -e artifact`; build/placebench-artifact-VERSION.tar.gz.

The committed tree of HEAD with the raw results in docs/results, and ARTIFACT.md at its top. The same commit gives the
same bytes.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def main() -> None:
    """Write the archive, and print its path; ends with exit code 1 where files are not committed."""
    if changed := git("status", "--porcelain").strip():
        sys.exit(f"an artifact is made of a commit, and these files differ from it:\n{changed}")
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    name = f"placebench-artifact-{version}"
    out = TOP / "build" / f"{name}.tar.gz"
    out.parent.mkdir(exist_ok=True)
    moved = f"--add-virtual-file={name}/ARTIFACT.md:{Path(__file__).with_name('ARTIFACT.md').read_text()}"
    commit = f"--add-virtual-file={name}/COMMIT:{git('rev-parse', 'HEAD')}"
    git("archive", f"--prefix={name}/", moved, commit, "-o", str(out), "HEAD")
    print(f"{out}: {out.stat().st_size} bytes")


def git(*arguments: str) -> str:
    """What git prints; raises CalledProcessError where it fails."""
    return subprocess.run(["git", *arguments], cwd=TOP, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
