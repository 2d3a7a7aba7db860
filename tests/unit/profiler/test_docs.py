"""What README.md and the pages about the profiler show is what a reader gets: each block is run as it is written."""

import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from sqlalchemy import create_engine
from sqlalchemy_version import since_2_1

from placebench.profiler import Keep, Limits, PlanNode, Recording, Sampling, SqlProfiler, Statement
from placebench.profiler.analysis.findings import DESCRIPTIONS, Kind

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CONFTEST = """
import pytest
from sqlalchemy import create_engine, text


@pytest.fixture
def client():
    class Client:
        def get(self, path):
            with create_engine("sqlite://").connect() as connection:
                connection.execute(text("select 1")).all()
    return Client()
"""


def block(page: str, containing: str = "", language: str = "python") -> str:
    """The first block of a page in this language that contains this."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return next(each for each in blocks if containing in each)


def skeleton(printed: str) -> list[str]:
    """The lines of an output without figures, places, these tests and widths, and without the last line, an address."""
    lines = [line for line in printed.splitlines() if not line.startswith("file:")]
    lines = [re.sub(r"\S*?(\w+\.py):\d+", r"\1", line).partition(", called from test_docs.py")[0] for line in lines]
    return [" ".join(re.sub(r"\d[\d.]*( [mµn]?s)?|not measured", "#", line).split()) for line in lines]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own as the current one, from which modules are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(script: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the names of a script are after it ran, with these values before."""
    names = values or {}
    exec(compile(script, "orders.py", "exec"), names)
    return names


def test_the_example_of_the_readme_prints_what_it_shows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten lines, as they are: the same lines with other figures, and a page."""
    names = run(block("README.md"))

    names["profiler"].remove()
    names["engine"].dispose()
    assert skeleton(capsys.readouterr().out) == skeleton(block("README.md", "n+1", language="text"))
    assert (here / "orders.html").stat().st_size > 10_000


def test_the_line_of_the_readme_wraps_an_application(here: Path) -> None:
    """A request leaves a recording."""
    profiler = SqlProfiler(create_engine("sqlite://"))
    application = run(
        block("README.md", "profiler.wsgi"),
        {"profiler": profiler, "application": lambda *_: [b"x"], "Path": Path},
    )["application"]

    application({}, None)

    profiler.remove()
    assert len(list((here / "recordings").iterdir())) == 1


def test_the_script_runs(here: Path) -> None:
    """docs/howto/script.md: its assertion holds, and its files are written."""
    run(block("docs/howto/script.md") + "\nengine.dispose()\n")

    assert sorted(path.name for path in here.iterdir()) == ["before.html", "before.json"]


@since_2_1
def test_the_shop_has_the_finding_of_the_tutorial_and_not_after_the_fix(here: Path) -> None:
    """docs/start: the summary and the N+1 with its relationship; two statements and no N+1 after the change."""
    source = (DOCS / "start" / "shop.py").read_text()
    shown = skeleton(block("docs/start/first-profile.md", "statements 51", language="text"))
    change = re.search(r"replace `(.+?)` by `(.+?)`", (DOCS / "start" / "first-profile.md").read_text(encoding="utf-8"))
    assert change is not None

    before, after = profiled(source), profiled(source.replace(*change.groups()))

    findings = [str(each) for each in before.findings() if each.kind == "n+1"]
    assert skeleton("\n".join([str(before.summary()), *findings])) == shown
    assert (before.statement_count, after.statement_count) == (51, 2)
    assert [each.kind for each in after.findings() if each.kind == "n+1"] == []


def profiled(source: str) -> Recording:
    """The second request to the shop of this source, in mode full."""
    Path("shop.py").write_text(source)
    sys.modules.pop("shop", None)
    profiler = SqlProfiler()
    import shop

    for _ in range(2):
        with profiler.record("GET /orders", mode="full") as recording:
            shop.application({}, lambda *_: None)
    profiler.remove()
    shop.engine.dispose()
    return recording


def test_the_wsgi_page_runs(here: Path) -> None:
    """The middleware leaves a recording, and the second block loads it."""
    engine = create_engine("sqlite://")
    names = run(block("docs/howto/wsgi.md"), {"engine": engine, "application": lambda *_: [b"x"]})
    names["application"]({}, None)
    (path,) = (here / "recordings").glob("*.recording.json")

    names["profiler"].remove()
    loaded = run(block("docs/howto/wsgi.md", "load").replace("1234-1.recording.json", path.name))

    engine.dispose()
    assert loaded["recording"].name == "? "


def test_the_asgi_page_runs() -> None:
    """The wrapped application is one that can be served."""
    engine = create_engine("sqlite://")

    names = run(block("docs/howto/asgi.md"), {"engine": engine, "app": None})

    names["profiler"].remove()
    engine.dispose()
    assert names["app"].counts.seen == 0


@pytest.mark.processes
def test_the_budgets_hold(here: Path) -> None:
    """docs/howto/pytest.md, in a run of pytest of its own."""
    (here / "conftest.py").write_text(CONFTEST)
    (here / "test_orders.py").write_text(f"import pytest\n\n{block('docs/howto/pytest.md')}")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert "2 passed" in printed


def test_production_takes_what_is_shown(here: Path) -> None:
    """Rate, token, mode and folder; the folder is another one here."""
    profiler = SqlProfiler(create_engine("sqlite://"))
    names: dict[str, Any] = {
        "profiler": profiler,
        "application": lambda _environ, _start_response: [b"x"],
        "os": SimpleNamespace(environ={"PROFILE_TOKEN": "token"}),
        "Path": lambda _there: here / "profiles",
        "Keep": Keep,
        "Sampling": Sampling,
    }

    application = run(block("docs/howto/production.md"), names)["application"]
    application({"HTTP_X_PLACEBENCH_PROFILE": "token full"}, None)
    application({}, None)

    profiler.remove()
    assert (application.counts.seen, application.counts.profiled) == (2, 1)


def test_each_finding_and_limit_has_its_place_in_the_table() -> None:
    """docs/reference/findings.md has a row for each kind, whose last column names the limits of the kind."""
    table = (DOCS / "reference" / "findings.md").read_text().partition("| --- |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \|.*\|([^|]*)\|$", table, re.MULTILINE)

    assert [name.lower() for name, _ in rows] == list(DESCRIPTIONS) == list(get_args(Kind))
    assert {name for _, limits in rows for name in re.findall(r"`(\w+)`", limits)} == set(asdict(Limits()))


def test_statistics_are_sent_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/howto/production.md: Prometheus's text from an address of the application's, and the same in Python."""
    views: dict[str, Any] = {}
    app = SimpleNamespace(get=lambda path: lambda view: views.setdefault(path, view))
    profiler = run(block("docs/howto/production.md", "/metrics"), {"app": app})["profiler"]
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql("select 1").all()
    engine.dispose()

    text, headers = views["/metrics"]()
    run(block("docs/howto/production.md", "p95_s"), {"profiler": profiler})
    profiler.remove()

    assert 'sql="select ?"} 1' in text
    assert headers["Content-Type"].endswith("0.0.4")
    assert "select ?" in capsys.readouterr().out


def test_the_walk_through_a_plan_prints_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its own time, deeper ones further in."""
    plan = PlanNode("Sort", elapsed_s=0.5, children=(PlanNode("Seq Scan", "orders", elapsed_s=0.25),))
    recording = Recording("r", "plans", statements=[Statement("select 1", "f", 0.0, plan=plan)])

    run(block("docs/howto/query-plans.md"), {"recording": recording})

    assert [line.split(" 0.25")[0] for line in capsys.readouterr().out.splitlines()] == [
        " Sort",
        "   Seq Scan on orders",
    ]


def test_limits_are_passed_as_shown() -> None:
    """docs/reference/findings.md."""
    assert run(block("docs/reference/findings.md"), {"recording": Recording("r", "full")})["findings"] == ()


@pytest.mark.processes
@since_2_1
def test_the_commands_of_the_tutorial_run(here: Path) -> None:
    """docs/start/first-profile.md: on its shop before and after the change, with what it shows."""
    source, page = (DOCS / "start" / "shop.py").read_text(), (DOCS / "start" / "first-profile.md").read_text("utf-8")
    before, after = re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (change,) = re.findall(r"replace `(.+?)` by `(.+?)`", page)

    printed = []
    for shop, commands in ((source, before), (source.replace(*change), after)):
        Path("shop.py").write_text(shop)
        for command in commands.splitlines():
            called = [sys.executable, "-m", *shlex.split(command)]
            printed.append(subprocess.run(called, capture_output=True, text=True, check=True).stdout)

    found = re.search(r"^n\+1:.*(\n    .*)+", printed[0], re.MULTILINE)
    assert found is not None
    assert skeleton(found[0]) == skeleton(block("docs/start/first-profile.md", "n+1:", language="text"))[-5:]
    assert [re.search(r"statements (\d+) ", text)[1] for text in printed[:2]] == ["51", "2"]
    assert differing(printed[2]) == differing(block("docs/start/first-profile.md", "gone", language="text"))
    assert {"index.html", "recording.json"} <= {path.name for path in (here / "before").iterdir()}


def differing(printed: str) -> set[tuple[str, str]]:
    """Each statement of a difference with what became of it."""
    return set(re.findall(r"^  (gone|new|same) .* x +(SELECT .*)$", printed, re.MULTILINE))
