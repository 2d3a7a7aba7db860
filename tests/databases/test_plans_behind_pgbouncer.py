"""Mode `plans` through pgbouncer in transaction pooling: its other clients are sent nothing."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy_version import since_2_0

from placebench.profiler import SqlProfiler

_NOBODY = 65534


@pytest.fixture
def pooled_url(database_url: str, tmp_path: Path) -> Iterator[URL]:
    """The address of a pgbouncer with one server connection."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    url = make_url(database_url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = tmp_path / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{url.database} = host={url.host} port={url.port} user={url.username} password={url.password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = 1\nignore_startup_parameters = extra_float_digits\n"
    )
    as_nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    # Its folders are the user's own: it gets its settings by an open file.
    with (
        settings.open() as opened,
        subprocess.Popen(
            [program, "/dev/stdin"], stdin=opened, stderr=subprocess.PIPE, text=True, cwd="/", **as_nobody
        ) as process,
    ):
        lines = iter(process.stderr.readline, "")
        assert any(f"listening on 127.0.0.1:{port}" in line for line in lines)
        yield url.set(host="127.0.0.1", port=port, drivername="postgresql")
        process.kill()
        process.communicate()


@pytest.fixture(params=["psycopg2", pytest.param("psycopg", marks=since_2_0)])
def engine(pooled_url: URL, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine of each driver on the pooler."""
    made = create_engine(pooled_url.set(drivername=f"postgresql+{request.param}"), future=True)
    yield made
    made.dispose()


def seen_by_another(url: URL) -> tuple[list[tuple[str]], list[str]]:
    """The settings of auto_explain that another client of the pooler finds changed, and what it is sent."""
    connection = psycopg2.connect(url.render_as_string(hide_password=False))
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("select name from pg_settings where name like 'auto_explain.%' and source = 'session'")
    changed = cursor.fetchall()
    cursor.execute("select count(*) from pg_class")
    connection.close()
    return changed, connection.notices


def test_nothing_of_ours_reaches_another_client(profiler: SqlProfiler, engine: Engine, pooled_url: URL) -> None:
    """Neither between two transactions of a recording nor after it; a note says why there are no plans."""
    with profiler.record("plans", mode="plans") as recording, engine.connect() as connection:
        assert 1 == connection.execute(text("select 1")).scalar_one()
        connection.commit()
        meanwhile = seen_by_another(pooled_url)
        assert 2 == connection.execute(text("select 2")).scalar_one()
    engine.dispose()

    assert (meanwhile, seen_by_another(pooled_url)) == (([], []), ([], []))
    assert [each.plan for each in recording.statements] == [None, None]
    assert [note for note in recording.notes if note.startswith("no plans: a connection pooler")]
    assert recording.failed_hooks == ()


def test_estimates_need_no_setting(profiler: SqlProfiler, engine: Engine, pooled_url: URL) -> None:
    """With `explain` the statements have the plans of EXPLAIN."""
    with profiler.record("plans", mode="plans", explain=True) as recording, engine.begin() as connection:
        connection.execute(text("select count(*) from pg_class")).all()
    engine.dispose()

    assert [each.plan is not None for each in recording.statements] == [True]
    assert seen_by_another(pooled_url) == ([], [])
