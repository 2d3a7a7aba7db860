"""Build the documentation: `tox -e docs`, or `python docs/build.py`; the site is build/docs/site.

Copies the pages to build/docs, adds the help of every command, what the tests of the contract hold, the live pages of
the gallery and the changelog, runs Zensical in strict mode, and refuses a site that links to a missing file or requests
anything from another host.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from placebench.profiler import Recording

TOP = Path(__file__).parents[1]
BUILD = TOP / "build" / "docs"
PAGES, SITE = BUILD / "pages", BUILD / "site"
FIX = ("select(Order))", "select(Order).options(selectinload(Order.items)))")
"""What the tutorial changes in its shop."""
WIDTH = 82
"""Of a block of code on a page, in letters."""


def main() -> None:
    """Build the site and check it; ends with exit code 1 and the problems on stderr where there are any."""
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(TOP / "docs", PAGES, ignore=shutil.ignore_patterns("zensical.toml", "build.py", "__pycache__"))
    shutil.copy(TOP / "docs" / "zensical.toml", BUILD)
    shutil.copy(TOP / "CHANGELOG.md", PAGES / "changelog.md")
    page = PAGES / "reference" / "command-line.md"
    page.write_text(page.read_text().replace("<!-- command-line -->", command_line()))
    page = PAGES / "reference" / "stability.md"
    page.write_text(page.read_text().replace("<!-- promises -->", promised()))
    for each in PAGES.rglob("*.md"):
        each.write_text(outside_links_as_code(each))
    write_gallery(PAGES / "gallery")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=BUILD, check=True)
    problems = sorted(broken_links()) + sorted(outside_requests())
    if problems:
        sys.exit("\n".join(problems))
    print(SITE / "index.html")


def command_line() -> str:
    """The help of each command as Markdown, a heading per command."""
    from placebench.cli import parser

    os.environ["COLUMNS"] = str(WIDTH + 2)
    return "\n\n".join(
        f"## `{each.prog}`\n\n```text\n{each.format_help().rstrip()}\n```" for each in commands(parser())
    )


def promised() -> str:
    """What tests/contract holds, as the rows of a table in Markdown: how many of each part, and their names."""
    promises = json.loads((TOP / "tests" / "contract" / "files" / "promises.json").read_text(encoding="utf-8"))
    rows = ["| Part | Number | Names |", "| --- | --- | --- |"]
    for part, names in promises.items():
        shown = [f"{name} {names[name]}" for name in names] if part == "formats" else [str(name) for name in names]
        last = [name.removeprefix("placebench.profiler.") if part == "api" else name for name in shown]
        rows.append(f"| {part} | {len(names)} | {', '.join(f'`{name}`' for name in last)} |")
    return "\n".join(rows)


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of all its subcommands, depth first."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                yield from commands(each)


def outside_links_as_code(page: Path) -> str:
    """The text of *page*; a link to a file of the repository that is not in docs/ becomes the name of that file."""

    def name(link: re.Match[str]) -> str:
        target = (page.parent / link[2].partition("#")[0]).resolve()
        return link[0] if target.is_relative_to(PAGES) else f"`{link[1].strip('`')}`"

    return re.sub(r"(?<!!)\[([^\]]+)\]\((\.\./[^):]+)\)", name, page.read_text())


def write_gallery(folder: Path) -> None:
    """The tutorial's shop before and after the fix, profiled now, with flame graphs and their difference."""
    from placebench.profiler import write_difference_page, write_flame_page

    source = (TOP / "docs" / "start" / "shop.py").read_text()
    recordings = {"shop": recorded(source), "shop-fixed": recorded(source.replace(*FIX))}
    for name, recording in recordings.items():
        assert recording.session is not None
        write_flame_page(recording.session, folder / f"{name}-flame.html", title=recording.name, back=f"{name}.html")
        recording.write_page(folder / f"{name}.html", flame_page=f"{name}-flame.html")
    write_difference_page(recordings["shop"].diff(recordings["shop-fixed"]), folder / "shop-difference.html")


def recorded(source: str) -> "Recording":
    """The fastest of ten recorded requests to the shop with this source, after one that is not recorded."""
    from placebench.profiler import SqlProfiler

    profiler = SqlProfiler()
    shop = sys.modules["shop"] = ModuleType("shop")
    exec(compile(source, "shop.py", "exec"), shop.__dict__)
    recordings = []
    for _ in range(11):
        with profiler.record("GET /orders", mode="flame") as recording:
            shop.application({}, lambda *_: None)
        recordings.append(recording)
    profiler.remove()
    shop.engine.dispose()
    return min(recordings[1:], key=lambda each: each.elapsed_s)


class Page(HTMLParser):
    """What a built page refers to: `loaded` by the browser itself, `linked` for the reader to follow; and its ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value}
        self.ids.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.linked.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.loaded.append(found.get("href", ""))
        elif "src" in found:
            self.loaded.append(found["src"])


def broken_links() -> Iterator[str]:
    """A line for each link or file of a built page that leads nowhere, anchors included."""
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    for path, page in pages.items():
        for reference in dict.fromkeys((*page.linked, *page.loaded)):
            url = urlsplit(reference)
            if url.scheme or url.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.is_file():
                yield f"{path.relative_to(SITE)}: {reference} does not exist"
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].ids | {"__skip"}:
                yield f"{path.relative_to(SITE)}: {reference} has no such anchor"


def outside_requests() -> Iterator[str]:
    """A line for each script, style, font or picture that a page or a style sheet would load from another host."""
    for path in SITE.rglob("*.html"):
        for reference in Page(path).loaded:
            if urlsplit(reference).netloc:
                yield f"{path.relative_to(SITE)}: loads {reference}"
    styles = (*SITE.rglob("*.css"), *SITE.rglob("*.html"), *SITE.rglob("*.svg"))
    for path in styles:
        for reference in re.findall(r"(?:url\(|@import\s+)['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text("utf-8")):
            yield f"{path.relative_to(SITE)}: loads {reference}"


if __name__ == "__main__":
    main()
