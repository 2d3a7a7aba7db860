"""The application that an environment describes: what is checked before anything is served."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.test import Client

from placebench.errors import PlacebenchError
from placebench.lab.reference.deployment import make_application, make_engine

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """What a variant froze is given back to the collector, which is as it was."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_the_environment_makes_an_application(tmp_path: Path) -> None:
    """A database and a variant are enough; nothing is connected to before the first request."""
    database = tmp_path / "placement.sqlite"
    app = make_application({"PLACEBENCH_DATABASE_URL": f"sqlite:///{database}", "PLACEBENCH_VARIANT": "naive"})

    assert not database.exists()
    assert Client(app).get("/").status_code == 200


def test_a_bare_url_means_the_driver_that_we_bring() -> None:
    """postgresql:// and postgres:// are psycopg2's; SQLAlchemy would take psycopg 3."""
    drivers = [
        make_engine({"PLACEBENCH_DATABASE_URL": f"{scheme}://user@host/db"}).url.drivername
        for scheme in ("postgresql", "postgres", "postgresql+psycopg2")
    ]

    assert drivers == ["postgresql+psycopg2"] * 3


def test_the_pool_has_a_fixed_size() -> None:
    """Ten connections, or as many as the environment says."""
    url = "postgresql://user@host/db"

    assert make_engine({"PLACEBENCH_DATABASE_URL": url}).pool.size() == 10  # type: ignore[attr-defined]
    named = make_engine({"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_POOL_SIZE": "3"})
    assert named.pool.size() == 3  # type: ignore[attr-defined]


def test_the_variant_decides_whether_the_collector_is_frozen(tmp_path: Path) -> None:
    """tuned freezes what was loaded, naive leaves it."""
    url = f"sqlite:///{tmp_path / 'placement.sqlite'}"

    make_application({"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": "naive"})
    assert gc.get_freeze_count() == 0
    make_application({"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": "tuned"})
    assert gc.get_freeze_count() > 0


def test_a_profiled_application_leaves_recordings(tmp_path: Path) -> None:
    """Each request is recorded into the folder once its response is closed, as a WSGI server does."""
    folder = tmp_path / "profiles"
    environment = {
        "PLACEBENCH_DATABASE_URL": f"sqlite:///{tmp_path / 'placement.sqlite'}",
        "PLACEBENCH_PROFILE": "light",
        "PLACEBENCH_PROFILE_DIR": str(folder),
    }

    Client(make_application(environment)).get("/traits", headers=HEADERS).close()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "PLACEBENCH_DATABASE_URL is not set"),
        ({"PLACEBENCH_DATABASE_URL": "here"}, "PLACEBENCH_DATABASE_URL: expected postgresql://"),
        ({"PLACEBENCH_DATABASE_URL": "oracle9://x/y"}, "there is no driver .oracle9.: expected postgresql"),
        ({"PLACEBENCH_DATABASE_URL": "mysql+mysqldb://x/y"}, "placebench"),
        ({"PLACEBENCH_DATABASE_URL": "postgresql://x/y", "PLACEBENCH_VARIANT": "nimble"}, "nimble"),
        ({"PLACEBENCH_DATABASE_URL": "postgresql://x/y", "PLACEBENCH_POOL_SIZE": "0"}, "PLACEBENCH_POOL_SIZE"),
        (
            {"PLACEBENCH_DATABASE_URL": "postgresql://x/y", "PLACEBENCH_VARIANT": "dedup+responses:redis"},
            "PLACEBENCH_CACHE_URL: expected redis:|redis needs redis: pip install",
        ),
        ({"PLACEBENCH_DATABASE_URL": "postgresql://x/y", "PLACEBENCH_PROFILE": "deep"}, "PLACEBENCH_PROFILE"),
        ({"PLACEBENCH_DATABASE_URL": "postgresql://x/y", "PLACEBENCH_PROFILE": "light"}, "PLACEBENCH_PROFILE_DIR"),
        ({"PLACEBENCH_DATABASE_URL": "postgresql://x/y", "PLACEBENCH_COMPRESS": "yes"}, "PLACEBENCH_COMPRESS"),
    ],
)
def test_an_environment_that_cannot_be_used(environment: dict[str, str], message: str) -> None:
    """One line that names the variable and what was expected."""
    with pytest.raises(PlacebenchError, match=message) as raised:
        make_application(environment)
    assert "\n" not in str(raised.value)


@pytest.mark.processes
def test_a_server_that_loads_a_wrong_environment_ends_with_one_line() -> None:
    """Importing placebench.lab.reference.wsgi leaves one line on stderr and no traceback."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PLACEBENCH_")}
    command = [sys.executable, "-c", "import placebench.lab.reference.wsgi"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "placebench: PLACEBENCH_DATABASE_URL is not set: expected postgresql://USER@HOST/DATABASE"
    ]
