"""What README.md and docs/profiler.md show is what a reader gets: every block is run as it is written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from placebench.cli import main
from placebench.profiler import Keep, PlanNode, Recording, Sampling, SqlProfiler, Statement

ROOT = Path(__file__).parents[3]
SHOP = """
from sqlalchemy import create_engine, text

engine = create_engine("sqlite://")


def application(environ, start_response):
    with engine.connect() as connection:
        connection.execute(text("select 1")).all()
    start_response("200 OK", [])
    return [environ["QUERY_STRING"].encode()]
"""
CONFTEST = """
import pytest

from wsgi import application


@pytest.fixture
def client():
    class Client:
        def get(self, path):
            return application({"QUERY_STRING": ""}, lambda *_: None)
    return Client()
"""


def in_fences(page: str) -> str:
    """The one block of Python of a page's that matters here."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)[-1]


def indented(beginning: str) -> str:
    """The indented block of docs/profiler.md that begins so."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", (ROOT / "docs" / "profiler.md").read_text(), flags=re.MULTILINE)
    (block,) = (block for block in blocks if block.strip().startswith(beginning))
    return "\n".join(line.removeprefix("    ") for line in block.splitlines()).strip() + "\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the application of the examples, as the current one."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "wsgi.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("shop", None)
    if wsgi := sys.modules.pop("shop.wsgi", None):
        wsgi.engine.dispose()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its assertions hold, and its files are written."""
    monkeypatch.chdir(tmp_path)
    script = f"{in_fences('docs/profiler.md')}\nengine.dispose()\n"

    exec(compile(script, "docs/profiler.md", "exec"), {})

    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.html", "before.json"]


def test_the_readmes_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an engine, something to handle and an application, which a reader has."""
    monkeypatch.chdir(tmp_path)
    engine = create_engine("sqlite://")
    readers: dict[str, Any] = {
        "engine": engine,
        "handle": lambda request: engine.connect().execute(text(request)).all(),
        "request": "select 1",
        "application": lambda _environ, _start_response: [b"x"],
    }

    exec(compile(in_fences("README.md"), "README.md", "exec"), readers)
    readers["application"]({}, None)

    readers["profiler"].remove()
    engine.dispose()
    assert readers["recording"].statement_count == 1
    assert len(list((tmp_path / "recordings").iterdir())) == 1


def test_the_commands_run(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both, one after the other; mode plans says that SQLite has none."""
    commands = indented("placebench profile").splitlines()

    codes = [main(shlex.split(command)[1:]) for command in commands]

    assert (len(commands), codes) == (2, [0, 0])
    assert "no plans: only PostgreSQL" in capsys.readouterr().out
    assert {"index.html", "recording.json", "flame.html", "flame.speedscope.json"} <= {
        path.name for path in (shop / "profile").iterdir()
    }


def test_the_budgets_hold(shop: Path) -> None:
    """In a run of pytest of its own, with a client of the shop's."""
    (shop / "shop" / "conftest.py").write_text(CONFTEST)
    (shop / "shop" / "test_orders.py").write_text(f"import pytest\n\n{indented('@pytest.mark.sql_budget')}")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"]
    told = subprocess.run(command, cwd=shop / "shop", capture_output=True, text=True, check=False).stdout

    assert "2 passed" in told


def test_production_takes_what_is_shown(tmp_path: Path) -> None:
    """Rate, token, mode and folder; the folder is another one here."""
    profiler = SqlProfiler(create_engine("sqlite://"))
    readers: dict[str, Any] = {
        "profiler": profiler,
        "application": lambda _environ, _start_response: [b"x"],
        "os": SimpleNamespace(environ={"PROFILE_TOKEN": "token"}),
        "Path": lambda _there: tmp_path / "profiles",
        "Keep": Keep,
        "Sampling": Sampling,
    }

    exec(indented("application = profiler.wsgi(\n"), readers)
    readers["application"]({"HTTP_X_PLACEBENCH_PROFILE": "token full"}, None)
    readers["application"]({}, None)

    profiler.remove()
    assert (readers["application"].counts.seen, readers["application"].counts.profiled) == (2, 1)


def test_the_walk_through_a_plan_prints_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its own time, deeper ones further in."""
    plan = PlanNode("Sort", elapsed_s=0.5, children=(PlanNode("Seq Scan", "orders", elapsed_s=0.25),))
    recording = Recording("r", "plans", statements=[Statement("select 1", "f", 0.0, plan=plan)])

    exec(indented("for depth, node"), {"recording": recording})

    assert [line.split(" 0.25")[0] for line in capsys.readouterr().out.splitlines()] == [
        " Sort",
        "   Seq Scan on orders",
    ]
