"""`placebench lab study breakdown` on a real PostgreSQL, uWSGI and locust: its parts add up."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server


@pytest.mark.long
def test_the_parts_of_every_row_are_the_clients_latency(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], documented: Callable[[str], set[str]]
) -> None:
    """A no-op without a statement, a provider with one, claims with one and more where refused; telemetry stays."""
    folder, small = tmp_path / "run", ["--trees", "2", "-n", "1", "--json", "--server", server.url]

    assert 0 == main(
        [
            "lab",
            "study",
            "breakdown",
            *small,
            "--endpoints",
            "one-provider,claims",
            "--time",
            "0.3",
            "--out",
            str(folder),
        ]
    )
    noop, provider, claims = json.loads(capsys.readouterr().out)["rows"]

    assert ("no-op", 1.0, 0.0, 0.0) == tuple(
        noop[name] for name in ("endpoint", "share_of_noop", "statements", "unexplained_s")
    )
    assert documented("breakdown") <= set(noop)
    assert ("one provider", 1.0) == (provider["endpoint"], provider["statements"])
    parts = ("http_s", "framework_s", "python_s", "pool_s", "database_s", "unexplained_s")
    assert ("PUT /allocations/<id>", 1) == (claims["path"], claims["n"])
    assert claims["statements"] >= 1
    for row in (noop, provider, claims):
        assert pytest.approx(row["client_s"]) == sum(row[part] for part in parts)
        assert all(row[part] >= 0 for part in parts)
    assert all(0 < row["database_share"] < 1 for row in (provider, claims))
    assert "Latency at the client by part" in (folder / "index.html").read_text()
    assert 0 == results.load(folder).telemetry.truncated
