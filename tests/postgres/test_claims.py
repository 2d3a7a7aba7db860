"""Eight clients claim the last units of the same providers from four workers of uWSGI."""

from claimants import contend, provide, wrong_in_the_tables
from sqlalchemy import create_engine

from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import ServerSpec


def test_no_unit_is_given_twice_and_nobody_sees_an_error(database_url: str) -> None:
    """Checked from the tables: no provider gives more than it has, every accepted write counts in its generation, and
    whoever holds a unit by the tables was told so. Answers are 200, 204 and 409: no 5xx, no deadlock."""
    provide(database_url)

    with serve(ServerSpec(database_url=database_url, processes=4)) as server:
        outcome = contend(server.url, clients=8, seconds=3)
    engine = create_engine(database_url)
    wrong = wrong_in_the_tables(engine, outcome)
    engine.dispose()

    assert wrong == []
    assert set(outcome.statuses) <= {"GET 200", "PUT 204", "PUT 409"}
    assert outcome.statuses["PUT 204"] > 30
