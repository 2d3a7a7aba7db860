"""No secret that a user gives leaves through a run: its folder, what is printed, the list of processes.

A canary is put in every place that takes a secret, and searched for everywhere afterwards.
"""

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from descendants import descendants
from orders_app import served
from sqlalchemy import make_url

from placebench.cli import main
from placebench.runtime.postgres import Server

CANARIES: dict[str, str] = {}


def canary(place: str) -> str:
    """A secret of its own for each place."""
    return CANARIES.setdefault(place, f"c4nary{len(CANARIES):02}")


SHOP = f"""
import json, os
from sqlalchemy import create_engine, text

def app(environ, start_response):
    path, sent = environ["PATH_INFO"], environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    known = environ.get("HTTP_AUTHORIZATION") == "Bearer {canary("token of the login")}"
    headers = [("Content-Type", "application/json")]
    if path == "/login":
        assert b"{canary("login")}" in sent
        headers.append(("Set-Cookie", "sid={canary("cookie")}; Path=/"))
        body = {{"access_token": "{canary("token of the login")}"}}
    elif path != "/":
        assert "sid={canary("cookie")}" in environ["HTTP_COOKIE"] and known
        with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).connect() as connection:
            body = {{"orders": connection.scalar(text("SELECT count(*) FROM orders"))}}
    else:
        body = {{}}
    start_response("500 Oops" if path == "/broken" else "200 OK", headers)
    if path == "/broken":
        body = {{"password": "{canary("body of an error")}"}}
    return [json.dumps(body).encode()]
"""
PLAN = f"""
[tool.placebench]
database = "postgresql"
setup = '''PGPASSWORD={canary("variable of the setup")} true --password {canary("option of the setup")} \
 postgresql://u:{canary("URL of the setup")}@/x@h/d 'host=h password={canary("conninfo of the setup")}' \
 -H 'Authorization: Basic {canary("header of the setup")}' ghp_{canary("GitHub")}AAAAAAAAAAAAAAAAAAAA \
 AKIA{canary("AWS").upper()}0000000000 eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{canary("JWT")}.x \
 https://{canary("user of a URL")}@git/x
psql -qc 'CREATE TABLE orders (id integer PRIMARY KEY)' '''

[tool.placebench.app]
app = "shop:app"
migrate = "true --api-key={canary("migrate")}"

[tool.placebench.app.env]
SECRET_KEY = "{canary("env")}"
DSN = "postgresql://u:{canary("URL in env")}@h/d"
NOTE = "password={canary("text in env")}"

[tool.placebench.variants.one]

[tool.placebench.variants.two]
env = {{ API_TOKEN = "{canary("env of a variant")}" }}

[[tool.placebench.requests]]
path = "/orders?token={canary("query")}&page=2"
headers = {{ X-Api-Key = "{canary("header")}", X-Session-Token = "{canary("header 2")}" }}

[[tool.placebench.requests]]
method = "POST"
path = "/orders"
json = {{ password = "{canary("body")}", item = "pen" }}

[[tool.placebench.requests]]
path = "/orders"
name = "orders with api_key={canary("name of a request")}"

[tool.placebench.login]
method = "POST"
path = "/login"
json = {{ name = "{canary("name of the login")}", password = "{canary("login")}" }}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a repository with a token in the URL of its remote, and secrets in variables."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "pyproject.toml").write_text(PLAN)
    remote = f"https://{canary('remote')}@example.invalid/shop.git"
    for words in (["init", "-q"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    monkeypatch.chdir(folder)
    for name, value in {
        "DATABASE_URL": f"postgresql://u:{canary('DATABASE_URL')}@127.0.0.1:1/d",
        "PLACEBENCH_DATABASE_URL": f"postgresql://u:{canary('PLACEBENCH_DATABASE_URL')}@127.0.0.1:1/d",
        "PGPASSWORD": canary("PGPASSWORD"),
        "PIP_INDEX_URL": f"https://u:{canary('PIP_INDEX_URL')}@index.invalid/",
        "SHOP_LOGIN": f'POST / {{"password": "{canary("login in a variable")}"}}',
        "SHOP_HEADER": f"Authorization: Bearer {canary('header in a variable')}",
    }.items():
        monkeypatch.setenv(name, value)
    (folder / "login.txt").write_text(f'POST / {{"pass": "{canary("login in a file")}"}}')
    return folder


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """The command lines of all processes below this one while the `with` block runs."""
    seen, ended = set[str](), threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            for process in descendants():
                try:
                    seen.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def check(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A command that is run, and everything that it left searched for canaries; what it printed is returned."""

    def run(*arguments: str, exit_code: int, out: Path | None = None, more: str = "") -> str:
        with command_lines() as lines:
            assert main([*arguments]) == exit_code, capfd.readouterr().err
        printed = capfd.readouterr()
        left = {"stdout": printed.out, "stderr": printed.err, "command lines": "\n".join(lines), "more": more}
        for path in out.rglob("*") if out else ():
            left |= (
                {str(path.relative_to(tmp_path)): path.read_bytes().decode(errors="replace")} if path.is_file() else {}
            )
        found = {
            (where, place)
            for where, text in left.items()
            for place, secret in CANARIES.items()
            if re.search(secret, text, re.IGNORECASE)
        }
        assert found == set()
        return printed.out + printed.err

    return run


@pytest.mark.long
def test_a_comparison_keeps_every_secret(
    shop: Path, tmp_path: Path, server: Server, check: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run that goes through, its report and its export; the rest of the texts is readable."""
    CANARIES["URL of --server"] = str(make_url(server.url).password)
    out = tmp_path / "run"
    words = ["compare", "one", "two", "-n", "1", "--rounds", "1", "--server", server.url, "-o", str(out)]
    monkeypatch.setattr("sys.argv", ["placebench", *words, "--login", f"POST /login pw={canary('--login')}"])

    check(*words, exit_code=3, out=out)

    assert {"PGPASSWORD=***", "--password ***", "psql -qc"} <= set(
        re.findall(r"PGPASSWORD=\*\*\*|--password \*\*\*|psql -qc", (out / "run.json").read_text())
    )
    assert "/orders?token=***&amp;page=2" in (out / "summary.md").read_text() + (
        out / "index.html"
    ).read_text().replace("<wbr>", "")
    for form in ([], ["--markdown"], ["--json"]):
        check("report", "open", str(out), *form, exit_code=0)
    check(
        "report",
        "export",
        str(out),
        "--out",
        str(tmp_path / "figures.json"),
        exit_code=0,
        out=tmp_path / "figures.json",
    )


@pytest.mark.long
def test_a_comparison_that_fails_keeps_every_secret(
    shop: Path, tmp_path: Path, server: Server, check: Callable[..., str]
) -> None:
    """Where a template cannot be reached, the setup command fails, or a response has a secret in it."""
    out, rest = tmp_path / "run", ["-n", "1", "--rounds", "1", "--server", server.url, "-o"]
    template = f"postgresql://u:{canary('--template-db')}@127.0.0.1:1/d"
    setup = f"DB_PASSWORD={canary('--setup')} false"

    check("compare", "one", "two", *rest, str(out / "1"), "--template-db", template, exit_code=2, out=out)
    check("compare", "one", "two", *rest, str(out / "2"), "--setup", setup, exit_code=2, out=out)
    check("compare", "one", "two", *rest, str(out / "3"), "--request", "/broken", exit_code=1, out=out)
    assert list(out.rglob("data.dump*")) == []


@pytest.mark.long
def test_other_commands_keep_every_secret(shop: Path, tmp_path: Path, check: Callable[..., str]) -> None:
    """A load, with its command lines; requests under the profiler; what doctor says; logins in files and variables."""
    with served() as url:
        address = url.replace("http://", f"http://me:{canary('URL of load')}@")
        request = f"/orders?api_key={canary('--request of load')}"
        words = ["--header", f"X-Auth-Token: {canary('--header')}", "--requests", "2", "--out", str(tmp_path / "load")]
        check("load", url, "--request", request, *words, exit_code=1, out=tmp_path / "load")
        check("load", address, "--requests", "2", exit_code=1)
    search = ["--slo", "p95 <= 5ms", "--rate", "1", "--time", "1"]
    check("load", f"http://me:{canary('URL of a search')}@127.0.0.1:1", *search, exit_code=2)
    profile = [
        "profile",
        "run",
        "shop:app",
        "--request",
        f"/?token={canary('--request of profile')}",
        "--out",
        "profile",
    ]
    logins = [
        "--login",
        f'POST /login {{"p": "{canary("login")}"}}',
        "--login",
        "@login.txt",
        "--login",
        "env:SHOP_LOGIN",
    ]
    check(*profile, *logins, "--header", "env:SHOP_HEADER", exit_code=0, out=shop / "profile")
    check("profile", "run", "shop:app", "--login", f"POST login pw={canary('malformed login')}", exit_code=2)
    check("doctor", exit_code=0)
    assert len(CANARIES) >= 30
