"""`placebench report reproduce`: a published comparison is run again in another folder."""

import json
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.long

SHOP = """
import os
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])

def app(environ, start_response):
    with engine.begin() as connection:
        for _ in range(1 if "AT_ONCE" in os.environ else 10):
            names = connection.scalars(text("SELECT name FROM orders ORDER BY name")).all()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [" ".join(names).encode()]
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


def test_a_published_run_is_made_again_and_each_claim_judged(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reader has the application, no plan, and the same data; the new run has its cost, of all its processes."""
    author, reader = tmp_path / "author", tmp_path / "reader"
    for folder in (author, reader):
        folder.mkdir()
        (folder / "shop.py").write_text(SHOP)
    (author / "pyproject.toml").write_text(PLAN)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.chdir(author)
    codes = [main(["compare", "-n", "0", "--server", server.url, "-o", "run"])]
    codes.append(main(["report", "export", "run", "-o", "../result.json"]))
    monkeypatch.chdir(reader)
    capsys.readouterr()
    codes.append(main(["report", "reproduce", "../result.json", "--server", server.url, "-o", "run", "--json"]))
    document = json.loads(capsys.readouterr().out)
    statements = next(each for each in document["claims"] if each["metric"] == "statements")
    cost = results.load("run").head.cost

    assert (codes, document["outcome"]) == ([0, 0, 0], "reproduced")
    assert statements["new"]["ratio"] == pytest.approx(0.1)
    assert statements["difference_log"] == pytest.approx(0, abs=1e-3)
    assert document["other_conditions"] == []
    assert json.loads(Path("run/reproduction.json").read_text()) == document
    assert cost is not None
    assert min(cost.servers_cpu_s, cost.placebench_cpu_s) > 0.1
    assert (cost.databases_cpu_s or 0) > 0.01
