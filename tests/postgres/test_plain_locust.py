"""The laboratory's locustfiles under locust itself, without `placebench load`."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.compare.keep.records import LoadResult
from placebench.compare.measure.profiled_pass import wait_for_recordings
from placebench.lab.inventory.seeding import data_digest, find_topology, seed
from placebench.paths import resource_folder
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server
from placebench.runtime.running_server import ServerSpec

NESTED = find_topology("nested-perfload", trees=10)
LIMIT_S = 60


@pytest.fixture(scope="module")
def seeded(server: Server) -> Iterator[str]:
    """Ten trees: room for twenty claims."""
    url = server.create_database("placebench_test_plain_locust")
    seed(NESTED, url)
    yield url
    server.drop_database("placebench_test_plain_locust")


def run_locust(locustfile: Path, url: str, *options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run locust in *folder* until it ends."""
    command = [sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "-H", url, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("claims", ("-u", "3", "--requests", "40")),
        ("claims", ("-u", "2", "--requests", "40", "--processes", "2")),
        ("instances", ("--rate", "20", "--requests", "20")),
    ],
)
def test_a_locustfile_that_writes_leaves_the_data_as_it_was(
    seeded: str, name: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Run from a copy in another folder, it sends its requests, and releases at its end what it claimed."""
    before = data_digest(seeded)
    copy = Path(shutil.copy(resource_folder("locustfiles") / f"{name}.py", tmp_path))
    with serve(ServerSpec(database_url=seeded, threads=4)) as server:
        ended = run_locust(copy, server.url, *options, "--samples-file", "samples.json", folder=tmp_path)
    result = LoadResult.load(tmp_path / "samples.json")

    assert (ended.returncode, result.failures) == (0, 0), ended.stderr
    assert result.requests == int(options[3])
    assert data_digest(seeded) == before


@pytest.mark.long
def test_claims_are_kept_on_request(seeded: str, tmp_path: Path) -> None:
    """--keep-claims=1 leaves them to be looked up, as `placebench load --check-writes` does."""
    before = data_digest(seeded)
    with serve(ServerSpec(database_url=seeded, threads=4)) as server:
        claims = resource_folder("locustfiles") / "claims.py"
        ended = run_locust(claims, server.url, "-u", "2", "--requests", "12", "--keep-claims=1", folder=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert data_digest(seeded) != before


@pytest.mark.long
@pytest.mark.usefixtures("in_foreground")
def test_recordings_of_a_service_under_locust_are_merged(
    seeded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lab serve --profile` records in each worker what locust sends; `profile show` has their mean and its pages, and
    the folder is refused by the next server, whose recordings would be merged with these."""
    recordings = tmp_path / "recordings"
    serving = [sys.executable, "-m", "placebench", "lab", "serve", "--db", seeded, "--port", "0", "--json"]
    serving += ["--variant", "tuned", "--processes", "2", "--profile", str(recordings)]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            closed = resource_folder("locustfiles") / "candidates_closed.py"
            ended = run_locust(closed, url, "-u", "4", "--requests", "40", folder=tmp_path)
            wait_for_recordings(
                recordings, ["GET /allocation_candidates"], expected=40
            )  # the last follow the responses
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)
        finally:
            server.kill()
    exit_code = main(["profile", "show", str(recordings), "--name", "GET /allocation_candidates", "--json"])
    shown = json.loads(capsys.readouterr().out)
    again = main(serving[3:])

    assert (ended.returncode, exit_code) == (0, 0), ended.stderr
    assert shown["summary"]["requests"] == 40
    assert {Path(path).name for path in shown["files"].values()} == {"merged.html", "merged.flame.html"}
    assert again == 2
    assert f"{recordings} has recordings already" in capsys.readouterr().err
