"""Repositories of git, made by an author of their own."""

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> str:
    """Return what git prints in *folder*, without the last line feed; raises CalledProcessError if it fails."""
    author = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *author, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder: Path, subject: str, *, tag: str = "") -> None:
    """Commit everything in *folder*, which becomes a repository if it is none, and tag the commit."""
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    if tag:
        git(folder, "tag", tag)
