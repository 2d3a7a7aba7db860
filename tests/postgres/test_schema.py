"""The Alembic history: up, down and up again, on an empty database and on one whose tables Placement made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, inspect, text

from placebench.errors import DatabaseError
from placebench.lab.inventory.seeding import find_topology, migrate, seed
from placebench.paths import resource_folder

PLACEMENT_TABLES = Path(__file__).with_name("placement_tables.sql").read_text()
OURS = {"placebench_alembic_version", "placebench_created_tables", "placebench_receipts"}


@pytest.fixture(params=["empty", "made by Placement"])
def either(request: pytest.FixtureRequest, engine: Engine) -> Engine:
    """An empty database, or one that Placement's own migration has made."""
    if request.param == "made by Placement":
        run(engine, PLACEMENT_TABLES)
    return engine


def run(engine: Engine, statements: str) -> None:
    """Several statements in one transaction."""
    with engine.begin() as connection:
        connection.exec_driver_sql(statements)


def alembic(engine: Engine, action: str, *arguments: str) -> None:
    """What the program alembic does, on this database."""
    config = Config()
    config.set_main_option("script_location", str(resource_folder("schema")))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        getattr(command, action)(config, *arguments)
        connection.commit()


def catalogue(engine: Engine) -> list[str]:
    """Every column, constraint and index of the database, as PostgreSQL writes them."""
    with engine.connect() as connection:
        return sorted(
            connection.scalars(
                text(
                    "SELECT concat_ws(' ', table_name, column_name, column_default, is_nullable, data_type,"
                    " character_maximum_length) FROM information_schema.columns WHERE table_schema = 'public'"
                    " UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))"
                    " FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
                    " UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'"
                )
            )
        )


def test_the_head_is_what_the_tables_say(database_url: str, either: Engine) -> None:
    """`alembic check` finds nothing to do, on both kinds; it raises when it does."""
    migrate(database_url)

    alembic(either, "check")


def test_an_empty_database_becomes_what_placement_would_make(database_url: str, engine: Engine) -> None:
    """Column by column, name by name; beside it stands what is ours."""
    run(engine, PLACEMENT_TABLES)
    of_placement = catalogue(engine)
    run(engine, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    migrate(database_url)

    assert [line for line in of_placement if "alembic_version" not in line] == [
        line for line in catalogue(engine) if "placebench_" not in line
    ]


def test_up_down_up(database_url: str, either: Engine) -> None:
    """Down leaves what was there before, and up comes to the same place again."""
    before = catalogue(either)

    migrate(database_url)
    up = catalogue(either)
    alembic(either, "downgrade", "base")
    down = [line for line in catalogue(either) if "placebench_alembic_version" not in line]
    migrate(database_url)

    assert down == before
    assert catalogue(either) == up


def test_what_placement_made_and_wrote_stays(database_url: str, engine: Engine) -> None:
    """Up, down and up again lose no row of Placement's."""
    run(engine, PLACEMENT_TABLES)
    run(
        engine,
        "INSERT INTO resource_classes (id, name) VALUES (0, 'VCPU'), (10000, 'CUSTOM_OLD');"
        "INSERT INTO resource_providers (uuid, name) VALUES ('u', 'n');"
        "INSERT INTO users (external_id) VALUES ('somebody')",
    )

    migrate(database_url)
    alembic(engine, "downgrade", "base")
    migrate(database_url)

    with engine.connect() as connection:
        assert connection.scalars(text("SELECT name FROM resource_providers")).all() == ["n"]
        assert connection.scalars(text("SELECT external_id FROM users")).all() == ["somebody"]
        classes = connection.execute(text("SELECT id, name FROM resource_classes ORDER BY id")).all()
    assert len(classes) == 22
    assert classes[:2] == [(0, "VCPU"), (1, "MEMORY_MB")]
    assert classes[-2:] == [(20, "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC"), (10000, "CUSTOM_OLD")]


def test_down_removes_what_was_seeded_with_the_tables(database_url: str, engine: Engine) -> None:
    """Seeded rows can be made again: they are no reason to keep a table."""
    seed(find_topology("nested-perfload", trees=1), database_url)

    alembic(engine, "downgrade", "base")

    assert inspect(engine).get_table_names() == ["placebench_alembic_version"]


def test_down_keeps_tables_with_providers_of_others(database_url: str, engine: Engine) -> None:
    """A Placement may have worked on tables that we made."""
    migrate(database_url)
    run(engine, "INSERT INTO resource_providers (uuid, name) VALUES ('u', 'n')")

    with pytest.raises(CommandError, match="1 resource providers that no receipt names would be lost"):
        alembic(engine, "downgrade", "base")

    assert set(inspect(engine).get_table_names()) > OURS


def test_a_strangers_table_is_not_taken_for_placements(database_url: str, engine: Engine) -> None:
    """`users` is a common name; nothing is made beside it."""
    run(engine, "CREATE TABLE users (id integer, login text)")

    with pytest.raises(DatabaseError, match=r"users is not Placement's \(it has no created_at, external_id, "):
        migrate(database_url)

    assert inspect(engine).get_table_names() == ["users"]


def test_alembic_by_itself(database_url: str) -> None:
    """In a checkout, `alembic upgrade head` and `alembic check` need nothing but the variable, in its plain form."""
    plain = database_url.replace("postgresql+psycopg2://", "postgres://")

    assert bare_alembic("upgrade", "head", PLACEBENCH_DATABASE_URL=plain).returncode == 0
    assert bare_alembic("check", PLACEBENCH_DATABASE_URL=plain).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "url", "message"),
    [
        (["check"], "", "FAILED: which database? set PLACEBENCH_DATABASE_URL="),
        (["check"], "nonsense", "FAILED: PLACEBENCH_DATABASE_URL is not a database URL"),
        (["check"], "postgresql://127.0.0.1:1/x", "FAILED: the database that PLACEBENCH_DATABASE_URL names does not"),
        (["upgrade", "head", "--sql"], "postgresql://127.0.0.1:1/x", "FAILED: no --sql here"),
    ],
)
def test_alembic_by_itself_says_what_it_misses(arguments: list[str], url: str, message: str) -> None:
    """One line, no traceback."""
    result = bare_alembic(*arguments, PLACEBENCH_DATABASE_URL=url)

    assert result.returncode != 0
    assert message in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def bare_alembic(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program alembic, in the checkout."""
    return subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
