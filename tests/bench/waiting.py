"""The section of the bench about waiting: a command's start, a report, its page in a browser, and the quick run.

The main function is `bench_waiting`: wall seconds, each value in waiting.json. The browser is Debian's
chromium, headless.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raw_file import measured_here, write_raw

COMMANDS = ("--help", "compare --help", "profile run --help", "report list", "lab perfload --help")
CHROMIUM = Path("/usr/bin/chromium")
LOADED = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1000"


def bench_waiting(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """A line for each: seconds, n, and of the quick run where they go; what is measured is kept at once."""
    few, many = (1, 2) if arguments.smoke else (arguments.quick_runs, 12)
    run = "compare naive tuned --trees 4 -n 0" if arguments.smoke else "lab perfload --preset quick"
    document: dict[str, Any] = {**measured_here(), "n": many, "seconds": {}, "quick_spent_s": []}

    def keep(name: str, values: list[float]) -> None:
        say(name, spread(values), f"n = {len(values)}")
        document["seconds"][name] = values
        write_raw(arguments.out / "waiting.json", document)

    for each in COMMANDS:
        keep(f"placebench {each}", [called(*each.split()) for _ in range(many)])
    quick = list[float]()
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(few):
            folder = Path(temporary) / str(number)
            quick.append(called(*run.split(), "-q", "-o", str(folder), may_fail=True))
            document["quick_spent_s"].append(json.loads((folder / "run.json").read_text())["spent_s"])
            keep(f"placebench {run}", quick)
        keep("placebench report open", [called("report", "open", str(folder)) for _ in range(many)])
        if CHROMIUM.is_file():
            keep("the page, to DOMContentLoaded", opened(folder / "index.html", many))
    say("of the last run", *(f"{name} {value:.3g}" for name, value in document["quick_spent_s"][-1].items()))


def called(*words: str, may_fail: bool = False) -> float:
    """Seconds of one command; a quick run may be inconclusive."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "placebench", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=not may_fail)
    return time.perf_counter() - began


def opened(page: Path, number: int) -> list[float]:
    """Seconds until the page is parsed, each time in a new context; without the first, which starts processes."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(number + 1):
            context = browser.new_context()
            tab = context.new_page()
            tab.goto(page.as_uri(), wait_until="domcontentloaded")
            found.append(float(tab.evaluate(LOADED)))
            context.close()
        browser.close()
    return found[1:]
