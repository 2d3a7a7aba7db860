"""The tutorial of examples/shop: its commands run in one shell, in order, and print what the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from placebench.runtime.postgres import Server

# A whole tutorial, with comparisons of commits: 50 s of CPU, which are some minutes beside busy processes.
pytestmark = pytest.mark.timeout(600)
EXAMPLES = Path(__file__).parents[2] / "examples"
SHOP = EXAMPLES / "shop"
PAGE = (SHOP / "README.md").read_text(encoding="utf-8")
MARK = "== next command =="
FIGURE = re.compile(
    r"\[(?:95 % CI )?[−+\d][^]]*\]"
    r"|\b(?:[0-9a-f]{12}|[0-9a-f]{7})\b"  # a commit
    r"|[−+]?\b\d[\d.]*\s?(?:ns|µs|ms|s|%|KiB|MiB|B|×)(?!\w)"
)
"""What differs from run to run; numbers of statements, rows and the like do not."""


def blocks(language: str) -> list[str]:
    """The fenced blocks of the tutorial in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


DATABASE = "/tmp/shop-database"
"""Where the reader's server lies, and the test's does not."""
TIMES = re.compile(r"^HEAD is faster.*\n…\n", re.MULTILINE)


def steps() -> Iterator[tuple[str, str]]:
    """Each command of the tutorial, with the output that is shown below it.

    Comparisons only count, and the lines on times are left out: with more users that would be counted once more.
    """
    for each in re.split(r"^\$ ", "".join(blocks("console")), flags=re.MULTILINE)[1:]:
        command, _, output = each.partition("\n")
        if "--preset quick" in command:
            command, output = command.replace("--preset quick", "-n 0"), TIMES.sub("", output)
        if "--users" not in command:
            yield command, output


def plain(output: str) -> str:
    """The lines without figures, blank lines and the width of columns."""
    lines = (" ".join(FIGURE.sub("#", line).split()) for line in output.splitlines())
    return "\n".join(filter(None, lines))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Around the checkout in which the reader begins; a server that is left is stopped."""
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)  # what root starts is run by another account
        (Path(name) / "placebench").mkdir()
        (Path(name) / "placebench" / "examples").symlink_to(EXAMPLES)
        yield Path(name)
        stop = ["placebench", "db", "stop", "--remove", "--quiet", "--dir", f"{name}/database"]
        subprocess.run([sys.executable, "-m", *stop], check=True)


@pytest.mark.long
def test_each_command_prints_what_the_tutorial_shows(folder: Path, server: Server) -> None:
    """From the copy of the folder to the end; … stands for anything, and figures may differ.

    Comparisons have their databases on the tests' server, which saves the start of five.
    """
    expected = [(each.replace(DATABASE, f"{folder}/database"), output) for each, output in steps()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "GIT"))}
    author = {f"GIT_{role}_{key}": f"{key}@b.c" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    ended = subprocess.run(
        ["bash", "-ec", "\n".join(f"echo; echo {MARK}\n{command}" for command, _ in expected)],
        cwd=folder / "placebench",
        env={**kept, **author, "GIT_CONFIG_GLOBAL": os.devnull, "PATH": path, "PLACEBENCH_DATABASE_URL": server.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    printed = ended.stdout.split(MARK)[1:]
    for (command, output), actual in zip(expected, printed, strict=False):
        pattern = re.escape(plain(output)).replace("…", "(?s:.*)")
        assert re.fullmatch(pattern, plain(actual.replace(f"{folder}/database", DATABASE))), f"$ {command}\n{actual}"
    assert (len(expected), 0) == (len(printed), ended.returncode)


def test_the_tutorial_is_about_these_files() -> None:
    """Its page is short, what it quotes of a file is there, and what it installs is here."""
    files = "".join(path.read_text() for path in SHOP.rglob("*.*") if path.suffix in (".py", ".toml"))

    assert len(PAGE.splitlines()) <= 145
    assert [block for block in (*blocks("python"), *blocks("toml")) if block not in files] == []
    assert all(distribution(name) for name in (SHOP / "requirements.txt").read_text().split())
