"""Take the pictures in docs/images of the pages that placebench writes: `python docs/pictures.py FOLDER [NAME …]`.

Runs the shop of examples/shop in FOLDER, with its own PostgreSQL, and photographs the pages in a headless chromium: all
of them, or those that are named. Runs that FOLDER has already are not repeated. Needs git, a chromium, and
`pip install '.[bench]' -r examples/shop/requirements.txt playwright pillow`.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import sync_playwright

TOP = Path(__file__).parents[1]
IMAGES = TOP / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
MAX_BYTES = 150_000
PORT = 43297
SHOP = f"http://127.0.0.1:{PORT}"
REQUEST = "/orders?page=2"
COMMITS = ("Name the statuses", "Round the prices", "Sort the names")
"""Commits between the fix and its loss that change a comment alone, so that the history has some points."""
SERVICE = '''"""The shop with telemetry."""

from placebench import SqlProfiler
from placebench.telemetry import Telemeter
from shop.main import app as shop
from shop.main import engine

telemeter = Telemeter("telemetry", engine=engine)
profiler = SqlProfiler(engine)
profiler.listen(telemeter)
app = telemeter.asgi(profiler.asgi(shop, mode="light"))
'''
RECORD = (
    f"git checkout -q v1 && placebench profile run --request 'GET {REQUEST}' --mode flame --warmup 5 --out recording"
)
COMPARE = "git checkout -q v3 && placebench compare v1 v2 -n 8 --rounds 4 --control none --out comparison"
MATRIX = "placebench study matrix --axis variant=v1,v2 --axis users=1,4 --preset quick --rounds 1 --out matrix"
HISTORY = "git checkout -q v3 && placebench history backfill v1..v3 --reference v1 -n 6 --rounds 1"
LOAD = f"placebench load {SHOP} --request '{REQUEST}'"
TELEMETRY = f"{LOAD} --users 4 --time 15 --telemetry telemetry && placebench telemetry show telemetry"
CAPACITY = f"{LOAD} --slo 'p95 <= 250ms' --db $DATABASE_URL --out load"
PICTURES = {
    "recording": (RECORD, "recording/index.html", 1200, 1560),
    "recording-narrow": (RECORD, "recording/index.html", 400, 800),
    "flame-graph": (RECORD, "recording/flame.html", 1200, 800),
    "comparison": (COMPARE, "comparison/index.html", 1200, 1300),
    "matrix": (MATRIX, "matrix/index.html", 1200, 1000),
    "history": (f"{HISTORY} && placebench history show", "placebench-history.html", 1200, 830),
    "telemetry": (TELEMETRY, "telemetry/telemetry.html", 1200, 1000),
    "load": (CAPACITY, "load/index.html", 1200, 1000),
    "live": ("", "", 1200, 560),
}
"""For each picture the command, the page that it writes in the folder of the shop, and width and height in pixels."""


def main() -> None:
    """Take the pictures that are named, or all, after the runs that are missing."""
    folder = Path(sys.argv[1]).resolve()
    shop = folder / "shop"
    if not shop.exists():
        make_repository(shop)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = sh(shop, f"placebench db start --sqlalchemy --dir {folder}/database", stdout=subprocess.PIPE)
    os.environ["SQLALCHEMY_DATABASE_URL"] = started.stdout.strip()
    try:
        if not (folder / "filled").exists():
            sh(shop, "python -m shop.seed && touch ../filled")
        names = sys.argv[2:] or list(PICTURES)
        with chromium() as browser:
            for name in names:
                command, page, width, height = PICTURES[name]
                if name == "live":
                    photograph_live_page(browser, shop, width, height)
                    continue
                if not (shop / page).exists():
                    make_run(shop, command)
                photograph(browser, name, (shop / page).as_uri(), width, height)
    finally:
        sh(shop, f"placebench db stop --dir {folder}/database")


def sh(folder: Path, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell command in a folder."""
    return subprocess.run(command, cwd=folder, shell=True, check=True, text=True, **options)


def make_repository(shop: Path) -> None:
    """The shop in six commits: `v1` with an N+1, its fix `v2`, three small ones, and another N+1, `v3`."""
    shutil.copytree(TOP / "examples" / "shop", shop)
    (shop / "service.py").write_text(SERVICE, encoding="utf-8")
    sh(shop, "git init -q && git config user.name Shop && git config user.email shop@example.com")
    made = "__pycache__/\nrecording/\ncomparison/\nmatrix/\nload/\ntelemetry/\nprofiles/\nplacebench-history.*\n"
    (shop / ".git" / "info" / "exclude").write_text(made, encoding="utf-8")
    sh(shop, "git add . && git commit -qm 'Sell things' && git tag v1")
    sh(shop, "git am -q changes/2-load-the-items-at-once.patch && git tag v2")
    for subject in COMMITS:
        sh(shop, f"echo '# {subject}' >> shop/__init__.py && git commit -qam '{subject}'")
    sh(shop, "git am -q changes/4-simplify-the-query.patch && git tag v3")


@contextmanager
def serving(shop: Path, command: str) -> Iterator[subprocess.Popen[str]]:
    """Start the shop by a command, wait until it responds, and end it afterwards."""
    server = subprocess.Popen(command.split(), cwd=shop, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(300):
            try:
                urlopen(f"{SHOP}/openapi.json").read()
                break
            except URLError:
                time.sleep(0.2)
        yield server
    finally:
        server.terminate()
        server.wait()


def make_run(shop: Path, command: str) -> None:
    """Run the command of a picture, of a load beside the shop that it loads."""
    if not command.startswith(LOAD):
        sh(shop, command)
        return
    sh(shop, "git checkout -q v2")
    with serving(shop, f"uvicorn service:app --port {PORT} --log-level warning"):
        sh(shop, command)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def photograph(browser: Any, name: str, address: str, width: int, height: int) -> None:
    """Write the top of a page as docs/images/NAME.png, with a palette of 192 colours."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.goto(address)
    page.wait_for_timeout(1000)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(192, dither=Image.Dither.NONE)
    path = IMAGES / f"{name}.png"
    picture.save(path, optimize=True)
    page.close()
    if path.stat().st_size > MAX_BYTES:
        sys.exit(f"{path} has {path.stat().st_size} bytes, at most {MAX_BYTES} are wanted: lower its height")
    print(path)


def photograph_live_page(browser: Any, shop: Path, width: int, height: int) -> None:
    """Photograph the live page of `profile run` after twelve requests to the shop."""
    sh(shop, "git checkout -q v1")
    server_command = f"uvicorn shop.main:app --port {PORT} --log-level warning"
    with serving(shop, f"placebench profile run --mode full --out live -- {server_command}") as server:
        assert server.stderr is not None
        address = re.search(r"http://\S+/", server.stderr.readline())
        assert address is not None
        for number in range(1, 13):
            with urlopen(f"{SHOP}/orders?page={number}") as response:
                response.read()
        photograph(browser, "live", address[0], width, height)


if __name__ == "__main__":
    main()
