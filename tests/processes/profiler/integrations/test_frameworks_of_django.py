"""Django, Channels and Django's tasks with their import hooked, in a process of their own, which Django configures."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django")
PROGRAM = Path(__file__).parents[3] / "fakes" / "django_recorded.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the program printed."""
    database = tmp_path_factory.mktemp("django") / "shop.db"
    child = subprocess.run(
        [sys.executable, PROGRAM, str(database)], capture_output=True, text=True, timeout=120, check=False
    )
    assert 0 == child.returncode, child.stderr
    return json.loads(child.stdout)


def test_each_request_is_recorded_under_its_route(made: Any) -> None:
    """Under WSGI and ASGI; sync, async and streamed, and a page that is not there."""
    requests = [each[1:] for each in made["recorded"] if each[0] == "request"]

    assert (
        2
        * [
            ["GET /orders/<int:number>/", 202, 3, 0],
            ["GET /shop/items/<name>/", 200, 4, 0],
            ["GET /shop/stream/", 200, 2, 0],
            ["GET /nothing/", 404, 0, 0],
        ]
        == requests
    )


@pytest.mark.skipif(find_spec("channels") is None, reason="Channels is not installed")
def test_each_message_to_a_consumer_is_recorded(made: Any) -> None:
    """Of one that runs in a thread, and of an async one: the handshake, and two messages."""
    messages = [each[1:] for each in made["recorded"] if each[0] == "websocket"]

    name = "WEBSOCKET /ws/<room>/"
    assert 2 * [[name, 101, 0, 0], [name, None, 2, 0], [name, None, 3, 0]] == messages


def test_each_task_is_recorded(made: Any) -> None:
    """Of Django 6, or of the package for earlier versions."""
    if made["tasks"] is None:
        pytest.skip("this Django has no tasks, and django-tasks is not installed")

    tasks = [each for each in made["recorded"] if each[0] == "task"]
    assert [["task", "__main__.bill", None, 2, 0]] == tasks


def test_nothing_is_lost(made: Any) -> None:
    """The recordings have what sqlite3 traced, all of it and once."""
    assert made["traced"] == sum(statements for *_, statements, _ in made["recorded"])
