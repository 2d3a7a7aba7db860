"""The small service under uWSGI, on a port of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer, ServerSpec

SMALL_APP = {"module": "small_app:application", "environment": {"PYTHONPATH": str(Path(__file__).parent)}}


@pytest.fixture
def served() -> Iterator[Callable[..., RunningServer]]:
    """A function that serves the small app, with further fields of ServerSpec; all are stopped after the test."""
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(serve(ServerSpec(database_url="none", **{**SMALL_APP, **more})))
