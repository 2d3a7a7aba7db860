"""`placebench report reproduce`: a published comparison is run again from another checkout, on another folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server

SHOP = """
import os
from flask import Flask
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["DATABASE_URL"])
app = Flask(__name__)

@app.get("/orders")
def orders():
    with engine.begin() as connection:
        names = []
        for _ in range(1 if "AT_ONCE" in os.environ else 10):
            names = connection.scalars(text("SELECT name FROM orders ORDER BY name")).all()
        return names
"""
SETUP = """psql -q -c "CREATE TABLE orders (name text); INSERT INTO orders VALUES ('pear')" """
PLAN = f"""
[tool.placebench]
setup = '''{SETUP}'''
request = "/orders"

[tool.placebench.app]
app = "shop:app"

[tool.placebench.variants.one-by-one]

[tool.placebench.variants.at-once]
env = {{ AT_ONCE = "1" }}
"""
Reproduce = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def published(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The author's folder, with what was counted in result.json."""
    folder = tmp_path_factory.mktemp("author")
    (folder / "shop.py").write_text(SHOP)
    (folder / "pyproject.toml").write_text(PLAN)
    run = str(folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DATABASE_URL", raising=False)
        assert main(["compare", "-n", "0", "--server", server.url, "-o", run]) == 0
        assert main(["report", "export", run, "-o", "result.json"]) == 0
    return folder


@pytest.fixture
def reproduce(
    published: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Reproduce:
    """The command in the reader's folder, which has the application and no plan: exit code and document."""
    shutil.copy(published / "shop.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        result = str(published / "result.json")
        command = ["report", "reproduce", result, "--server", server.url, "-o", str(tmp_path / "run"), "--json"]
        code = main([*command, *arguments])
        said = capsys.readouterr()
        assert said.out, said.err
        document: dict[str, Any] = json.loads(said.out)
        return code, document

    return run


def by_metric(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The claims of a reproduction."""
    return {each["metric"]: each for each in document["claims"]}


def test_a_published_run_is_made_again_and_each_claim_judged(reproduce: Reproduce, tmp_path: Path) -> None:
    """On the same data, by the published plan alone; the run has its cost, of all its processes."""
    code, document = reproduce()
    claims = by_metric(document)
    head = results.load(tmp_path / "run").head

    assert (code, document["outcome"]) == (0, "reproduced")
    assert claims["statements"]["new"]["ratio"] == pytest.approx(0.1)
    assert claims["statements"]["difference_log"] == pytest.approx(0, abs=1e-3)
    assert document["other_conditions"] == []
    assert json.loads((tmp_path / "run" / "reproduction.json").read_text()) == document
    assert head.cost is not None
    assert min(head.cost.servers_cpu_s, head.cost.placebench_cpu_s) > 0.1
    assert (head.cost.databases_cpu_s or 0) > 0.01


def test_another_application_does_not_reproduce_it(reproduce: Reproduce, tmp_path: Path) -> None:
    """Where the change saves two SELECTs of three, not ten of eleven: exit code 1."""
    (tmp_path / "shop.py").write_text(SHOP.replace("else 10", "else 2"))
    code, document = reproduce()

    assert (code, by_metric(document)["statements"]["outcome"]) == (1, "not reproduced")
