"""The lines that the pages about frameworks show are what makes a recording."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placebench.http_session import Request
from placebench.profiler.integrations.in_process_client import in_process_client

HOWTO = Path(__file__).parents[4] / "docs" / "howto"


def run(page: str, **names: Any) -> dict[str, Any]:
    """The first block of Python of a page, with these names."""
    block = re.search(r"^```python\n(.*?)^```", (HOWTO / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]
    exec(compile(block, page, "exec"), names)
    return names


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_of_recordings() -> list[str]:
    """Of those in the folder that the pages name."""
    from placebench.profiler import Recording

    return [Recording.load(path).name for path in Path("recordings").glob("*.recording.json")]


def test_the_line_for_flask(query: Callable[[int], None]) -> None:
    """docs/howto/flask.md."""
    app = pytest.importorskip("flask").Flask("shop")
    app.get("/orders/<int:number>")(lambda number: str(query(number)))
    run("flask.md", app=app)

    with in_process_client(app) as client:
        client.send(Request("GET", "/orders/2"))

    assert ["GET /orders/<int:number>"] == names_of_recordings()


def test_the_line_for_fastapi(query: Callable[[int], None]) -> None:
    """docs/howto/fastapi.md."""
    app = pytest.importorskip("fastapi").FastAPI()

    @app.get("/orders/{number}")
    def order(number: int) -> None:
        query(number)

    run("fastapi.md", app=app)
    with in_process_client(app) as client:
        client.send(Request("GET", "/orders/2"))

    assert ["GET /orders/{number}"] == names_of_recordings()


def test_the_line_for_celery(query: Callable[[int], None]) -> None:
    """docs/howto/celery.md."""
    app = pytest.importorskip("celery").Celery("shop")
    app.conf.task_always_eager = True
    run("celery.md", app=app)

    def bill() -> None:
        query(2)

    app.task(name="shop.bill")(bill).delay()

    assert ["shop.bill"] == names_of_recordings()


def test_the_lines_for_django() -> None:
    """docs/howto/django.md: the middleware is one that Django can import."""
    pytest.importorskip("django")
    from django.utils.module_loading import import_string

    names = run("django.md", MIDDLEWARE=["other"], BASE_DIR=Path("base"))

    assert import_string(names["MIDDLEWARE"][0]).async_capable
    assert {"folder": Path("base/recordings")} == names["SQL_PROFILER"]


def test_the_cell_of_a_notebook() -> None:
    """docs/howto/jupyter.md."""
    names = run("jupyter.md")

    names["profiler"].remove()
    names["engine"].dispose()
    assert "SELECT ?" in names["recording"]._repr_html_()
