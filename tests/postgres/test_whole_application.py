"""All routes of an application at once: from an access log, with what varies, what differs and what fails."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main

SHOP = """
import os, secrets, sqlite3, time
from urllib.parse import urlsplit

CHANGED = os.environ.get("CHANGED", "")
database = sqlite3.connect(urlsplit(os.environ["DATABASE_URL"]).path[1:], isolation_level=None)
database.execute("CREATE TABLE IF NOT EXISTS visits (at real)") if CHANGED == "makes" else None

def application(environ, start_response):
    path, status, kind = environ["PATH_INFO"], "200 OK", "application/json"
    if path.startswith("/orders/"):
        database.execute("UPDATE users SET last_login = ?", [time.time()])
        body = '{"id": %s, "price": %d}' % (path[8:], 2 if CHANGED == "price" else 1)
    elif path == "/orders":
        link = "http://127.0.0.1:%s/orders?page=2" % environ["SERVER_PORT"]
        body = '{"at": %s, "next": "%s"}' % (time.time(), link)
    elif path == "/form":
        kind, body = "text/html", '<input name="csrf" value="%s">' % secrets.token_hex(8)
    elif path == "/search" and CHANGED == "price":
        status, body = "500 Broken", "no index"
    else:
        body = "[]"
        if CHANGED == "writes":
            database.execute("UPDATE stock SET number = number + 1")
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body.encode()]
"""
SEED = """
import os, sqlite3
from urllib.parse import urlsplit
database = sqlite3.connect(urlsplit(os.environ["DATABASE_URL"]).path[1:])
database.executescript("CREATE TABLE users (name text, last_login real); INSERT INTO users VALUES ('me', 0)")
database.executescript("CREATE TABLE stock (number integer); INSERT INTO stock VALUES (7)")
"""
PLAN = """
[tool.placebench]
database = "sqlite"
setup = "python seed.py"
requests_from = "access.log"

[tool.placebench.app]
app = "shop:application"

[tool.placebench.variants.base]
[tool.placebench.variants.same]
[tool.placebench.variants.changed]
env = { CHANGED = "price" }
[tool.placebench.variants.writes]
env = { CHANGED = "writes" }
"""
LOG = ["/orders/1", "/orders/2", "/orders/1", "/orders", "/form", "/search?q=x"]
Compare = Callable[..., tuple[int, str, results.Run]]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    """The command with these arguments in the shop's folder: exit code, last line on stderr, run."""
    shop = tmp_path / "shop"
    shop.mkdir()
    monkeypatch.chdir(shop)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (shop / "shop.py").write_text(SHOP)
    (shop / "seed.py").write_text(SEED)
    (shop / "pyproject.toml").write_text(PLAN)
    (shop / "access.log").write_text("".join(f'1.2.3.4 - - [x] "GET {path} HTTP/1.1" 200 5\n' for path in LOG))

    def run(*arguments: str) -> tuple[int, str, results.Run]:
        code = main(["compare", *arguments, "-n", "0", "-o", str(tmp_path / "run")])
        last = capsys.readouterr().err.strip().splitlines()[-1]
        return code, last, results.load(tmp_path / "run")

    return run


@pytest.mark.long
def test_what_varies_by_itself_is_named_and_is_no_difference(compare: Compare) -> None:
    """A time, a CSRF token, the server's own port, and a table that reading changes, alike in both variants."""
    code, _, run = compare("base", "same")

    assert code == 0
    same = run.head.same_responses
    assert {"GET /orders": ["$.at"], "GET /form": ['the text after input name="csrf" value="']} == same["varying"]
    assert ["users"] == same["changing_tables"]
    assert same["equal"] is True
    assert "left_out" not in same


@pytest.mark.long
def test_the_statements_of_a_long_mix_are_counted_on_sqlite(compare: Compare, tmp_path: Path) -> None:
    """Twelve cycles of some forty requests are more recordings than the profiler keeps by default."""
    compare("base", "same")

    counted = json.loads((tmp_path / "run" / "wire-base.json").read_text())["statements"]
    assert [0.5] * 12 == counted  # each second request is for an order, and writes last_login


def test_all_differences_are_shown_at_once(compare: Compare) -> None:
    """Two of four routes: one responds with another price, one fails; what varies is none of them."""
    code, last, run = compare("base", "changed")

    assert code == 1
    assert "2 of 4 routes: " in last
    assert "GET /orders/{id}: /orders/1: changed differs from base: $.price is 2 where 1 was expected" in last
    assert "GET /search: /search?q=x: changed: status 500, expected 200: no index" in last
    assert "--routes keep-going leaves these out" in last
    assert "/form" not in last
    assert run.head.status == "failed"


@pytest.mark.long
def test_routes_that_differ_are_left_out_if_that_is_wanted(compare: Compare, tmp_path: Path) -> None:
    """The others are counted, and the report names those that are not."""
    code, _, run = compare("base", "changed", "--routes", "keep-going")

    assert code == 0
    assert {"GET /orders/{id}", "GET /search"} == run.head.same_responses["left_out"].keys()
    assert "2 routes left out: " in (tmp_path / "run" / "summary.md").read_text()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["plan"]["routes"] == "keep-going"


@pytest.mark.long
def test_a_table_that_one_variant_changes_ends_the_run(compare: Compare) -> None:
    """Though another table is changed by both."""
    code, last, _ = compare("base", "writes")

    assert code == 1
    assert "the data of writes changed, in stock: 1 rows" in last


@pytest.mark.long
def test_a_run_without_any_route_left_is_an_error(compare: Compare) -> None:
    """Every response of the only route differs."""
    Path("access.log").write_text('1.2.3.4 - - [x] "GET /orders/1 HTTP/1.1" 200 5\n')

    code, last, _ = compare("base", "changed", "--routes", "keep-going")

    assert code == 1
    assert "changed differs from base: $.price is 2 where 1 was expected" in last
