"""One chromium for each module; without one, browser tests fail in CI and are skipped elsewhere, with the reason."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
# Nothing of the browser's own may go out while pages are watched for what they fetch.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Visit:
    """A page opened in a context of its own, with everything that it asked for and complained about."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.goto(address)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium, headless, driven by playwright.

    Not for the session: playwright's event loop would run on in the thread that later tests call asyncio.run in.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _without("playwright is not installed: pip install playwright")
    if not CHROMIUM.is_file():
        _without(f"no browser at {CHROMIUM}: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Open a file or a URL in a fresh context: `visit(path, viewport=…, java_script_enabled=…, color_scheme=…)`."""
    visits: list[Visit] = []

    def open_page(path: Path | str, **options: Any) -> Visit:
        visits.append(Visit(browser, path if isinstance(path, str) else path.as_uri(), **options))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()


def _without(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"browser tests cannot run: {reason}")
    pytest.skip(reason)
