"""Listening to the statements of psycopg2, which SQLAlchemy's events miss if a cursor of the driver executes them."""

from collections.abc import Callable
from typing import Any

from psycopg2.extensions import cursor
from sqlalchemy import Engine, event


def after_each_statement(engine: Engine, call: Callable[[Any], object]) -> None:
    """Call *call* with the driver's connection after each statement of the engine's connections."""

    class Cursor(cursor):
        def execute(self, *arguments: Any) -> None:
            super().execute(*arguments)
            call(self.connection)

    event.listen(engine, "checkout", lambda connection, *_: setattr(connection, "cursor_factory", Cursor))
