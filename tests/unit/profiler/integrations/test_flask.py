"""The Flask extension on a real application."""

from collections.abc import Callable
from pathlib import Path

import pytest

flask = pytest.importorskip("flask")

from placebench.profiler import Recording  # noqa: E402
from placebench.profiler.integrations.flask import FlaskExtension  # noqa: E402
from placebench.profiler.integrations.process_profiler import process_profiler  # noqa: E402


def application(query: Callable[[int], None]) -> "flask.Flask":
    """A view in a blueprint, a streaming one, and one that fails."""
    app = flask.Flask("shop")
    orders = flask.Blueprint("orders", "shop", url_prefix="/orders")

    @orders.get("/<int:number>")
    def order(number: int) -> str:
        query(number)
        return "an order"

    @orders.get("/")
    def every() -> "flask.Response":
        def parts() -> object:
            query(2)
            yield "a part"

        return flask.Response(parts())

    @orders.post("/")
    def fail() -> None:
        query(1)
        raise ZeroDivisionError

    app.register_blueprint(orders)
    return app


def test_each_request_is_recorded_under_its_route(query: Callable[[int], None]) -> None:
    """One line; streamed parts and requests that fail are recorded, and responses are the same."""
    app = application(query)
    FlaskExtension(app)
    client = app.test_client()

    texts = [client.get(path).text for path in ("/orders/3", "/orders/4", "/orders/", "/none")]
    failed = client.post("/orders/", buffered=True).status_code

    recorded = [(each.name, each.statement_count) for each in process_profiler().recordings]
    assert ["an order", "an order", "a part"] == texts[:3]
    assert 500 == failed
    assert [
        ("GET /orders/<int:number>", 3),
        ("GET /orders/<int:number>", 4),
        ("GET /orders/", 2),
        ("GET /none", 0),
        ("POST /orders/", 1),
    ] == recorded


def test_the_settings_of_an_application_come_first(query: Callable[[int], None], tmp_path: Path) -> None:
    """With init_app, as extensions have it; recordings are saved in the folder."""
    extension = FlaskExtension(mode="light")
    app = application(query)
    app.config["SQL_PROFILER"] = {"folder": tmp_path / "recordings", "mode": "full"}
    extension.init_app(app)

    app.test_client().get("/orders/3", buffered=True)

    (path,) = (tmp_path / "recordings").glob("*.recording.json")
    recording = Recording.load(path)
    assert ("GET /orders/<int:number>", "full", 3) == (recording.name, recording.mode, recording.statement_count)


def test_statements_name_their_route_and_view(query: Callable[[int], None], sent: list[str]) -> None:
    """If it is wanted; what no route was found for has no comment, also in a thread that served one before."""
    app = application(query)
    FlaskExtension(app, comments=True)
    app.register_error_handler(404, lambda _error: query(1) or "nothing")
    client = app.test_client()

    for path in ("/orders/1", "/none"):
        assert client.get(path, buffered=True).status_code == 200

    assert sent == ["select 0 /*controller='order',route='/orders/<int:number>'*/", "select 0"]
