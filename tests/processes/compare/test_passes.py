"""The parts of a pass that need no database."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.compare.load.load_run import responses_of
from placebench.compare.measure.passes import PassSetup
from placebench.compare.what.http_request import get
from placebench.errors import LoadError, ServerError
from placebench.runtime.running_server import RunningServer

Served = Callable[..., RunningServer]


def test_a_worker_that_dies_in_the_warm_up_is_told_with_its_log(served: Served, tmp_path: Path) -> None:
    """Not as a request without a response, which says nothing of why."""
    setup = PassSetup("none", "/die", tmp_path, processes=2, threads=2, users=2, seed=1)

    with pytest.raises(ServerError, match=r"a worker of uWSGI died while it served \(DAMN ! worker .*its log: "):
        setup.warm_up(served(processes=2, threads=2))


def test_a_request_without_a_response_from_a_server_that_lives_is_one_line(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its address, after the master had the time to see that a worker is gone."""
    monkeypatch.setattr("placebench.compare.load.load_run._DEATH_LOGGED_WITHIN_S", 0.1)
    server = served()

    with pytest.raises(LoadError, match=re.escape(server.url)), responses_of(server):
        get("http://127.0.0.1:9", "/")
