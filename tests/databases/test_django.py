"""Django's ORM under `SqlProfiler.for_drivers`: a real project, on sqlite3 and on PostgreSQL."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

pytest.importorskip("django")
FAKES = str(Path(__file__).parents[1] / "fakes")


def served(database: dict[str, Any]) -> dict[str, Any]:
    """What the project's own process printed: by page, statements, steps, findings and Django's count."""
    child = subprocess.run(
        [sys.executable, "-m", "django_shop.run", json.dumps(database)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((FAKES, os.environ.get("PYTHONPATH", "")))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (child.returncode, child.stderr) == (0, "")
    document: dict[str, Any] = json.loads(child.stdout)
    return document


def test_each_statement_of_a_page_on_sqlite(tmp_path: Path) -> None:
    """With its line in the project, not in Django; the N+1 is found; no SQLAlchemy is loaded."""
    document = served({"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")})

    pages = document["pages"]
    assert document["sqlalchemy"] is False
    assert [len(each["statements"]) for each in pages.values()] == [7, 2, 1, 3, 7]
    assert [each["notes"] for each in pages.values()] == [[], [], [], [], []]
    assert pages["lazy"]["findings"] == ["n+1"]
    assert [rows for rows, *_ in pages["prefetched"]["statements"]] == [6, 6]
    assert {function.split(".")[0] for *_, function in pages["lazy"]["statements"]} == {"lazy"}
    assert {function.split(".")[0] for *_, function in pages["awaited"]["statements"]} == {"awaited"}
    assert pages["awaited"]["findings"] == ["n+1"]
    assert pages["renamed"]["steps"] == ["BEGIN", "SAVEPOINT", "RELEASE", "COMMIT"]


def test_each_statement_of_a_page_on_postgresql(database_url: str) -> None:
    """As many as Django counts, which counts the steps of transactions too; server-side cursors have their fetches."""
    url = make_url(database_url)
    place = {"NAME": url.database, "USER": url.username, "PASSWORD": url.password, "HOST": url.host, "PORT": url.port}

    pages = served({"ENGINE": "django.db.backends.postgresql", **place})["pages"]

    counted = {name: each["django"] for name, each in pages.items()}
    assert counted == {name: len(each["statements"]) + len(each["steps"]) for name, each in pages.items()}
    assert pages["lazy"]["findings"] == ["n+1"]
    assert pages["lazy"]["statements"][0] == [6, 1, True, "lazy"]
    assert pages["awaited"]["statements"][1:] == [[1, 1, True, "awaited"]] * 6
    assert pages["streamed"]["statements"][0][0] == 6
    assert pages["streamed"]["statements"][0][1] > 4
    assert pages["renamed"]["steps"] == ["BEGIN", "SAVEPOINT", "RELEASE", "COMMIT"]
