"""What many tests share: one PostgreSQL for the whole session, and a fresh empty database for each test that asks."""

from collections.abc import Iterator
from itertools import count

import pytest

from placebench.postgres import Server, open_server

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server to test on: $PLACEBENCH_DATABASE_URL, or a private one that is gone after the session."""
    with open_server() as opened:
        yield opened


@pytest.fixture
def database_url(server: Server) -> Iterator[str]:
    """The URL of a fresh empty database, dropped after the test with whoever is still connected to it."""
    name = f"placebench_test_{next(_numbers)}"
    yield server.create_database(name)
    server.drop_database(name)
