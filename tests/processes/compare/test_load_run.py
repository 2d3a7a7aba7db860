import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LOCUSTFILES, LoadSpec, run_load
from placebench.compare.what.http_request import get
from placebench.errors import LoadError
from placebench.paths import resource_folder
from placebench.runtime.running_server import RunningServer
from placebench.stats import percentile

Served = Callable[..., RunningServer]
Loaded = Callable[..., LoadResult]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """A function that runs the load of these fields of LoadSpec."""
    return lambda server, **fields: run_load(LoadSpec(url=server.url, **fields), folder=tmp_path)


def requests_seen(server: RunningServer) -> int:
    """How many requests reached the service."""
    return int(get(server.url, "/counts").body.split()[0])


@pytest.mark.parametrize(("users", "requests", "warmup"), [(1, 5, 0), (3, 20, 4), (10, 33, 10)])
def test_exactly_so_many_requests(served: Served, loaded: Loaded, users: int, requests: int, warmup: int) -> None:
    """--requests N ends with N samples and N requests at the service, the warm-up apart, whoever many ask."""
    server = served(threads=4)
    result = loaded(server, request="/work?size=1000", users=users, requests=requests, warmup=warmup)

    assert (result.requests, result.failures, result.in_flight) == (requests, 0, 0)
    assert result.statuses == {"200": requests}
    assert result.body_bytes == [1000] * requests
    assert requests_seen(server) == requests + warmup


def test_a_request_under_way_at_the_end_is_waited_for(served: Served, loaded: Loaded) -> None:
    """A request of 1 s in a run of 0.2 s is counted, with its whole latency; none is started after it."""
    result = loaded(served(), request="/work?sleep=1", time_s=0.2)

    assert (result.requests, result.in_flight) == (1, 0)
    assert result.latency_s[0] > 1
    assert result.elapsed_s == pytest.approx(result.latency_s[0])


def test_failures_are_in_the_result(served: Served, loaded: Loaded) -> None:
    """Anything but 200 is a failure; what came is kept."""
    result = loaded(served(), request="/work?status=503", requests=4)

    assert (result.requests, result.failures, result.statuses) == (4, 4, {"503": 4})
    assert result.failure_messages == ["status 503: boom"]


def test_an_answer_that_does_not_come_is_a_failure(served: Served, loaded: Loaded) -> None:
    """After response_timeout_s a request is given up; the exception's name stands for the status."""
    result = loaded(served(), request="/work?sleep=2", requests=1, response_timeout_s=0.5)

    assert (result.requests, result.failures) == (1, 1)
    assert list(result.statuses) == ["ResponseTimeoutError"]
    assert result.failure_messages == ["ResponseTimeoutError: no whole response within 0.5 s"]


def test_a_request_that_got_no_answer_is_not_sent_again(tmp_path: Path) -> None:
    """A server that reads the request and closes the connection is asked three times by three requests."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def read_and_close() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    received.append(connection.recv(1000))
                    connection.close()

        threading.Thread(target=read_and_close, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        result = run_load(LoadSpec(url=url, requests=3), folder=tmp_path)
        listening.shutdown(socket.SHUT_RDWR)

    assert 3 == len([request for request in received if request])
    assert (result.requests, result.failures) == (3, 3)


@pytest.mark.long
def test_the_open_load_follows_one_schedule(served: Served, loaded: Loaded) -> None:
    """The same seed asks at the same moments, to the last digit, whatever the service did."""
    server = served(threads=4)
    load = {"kind": "open", "rate_per_s": 40.0, "time_s": 1.0, "seed": 5}
    quick = loaded(server, request="/work", **load)
    slow = loaded(server, request="/work?sleep=0.03", **load)

    assert sorted(quick.started_s) == sorted(slow.started_s)
    assert 20 < quick.requests < 60
    assert (quick.kind, quick.rate_per_s, quick.seed) == ("open", 40.0, 5)


@pytest.mark.long
def test_the_open_load_sees_a_stall_that_service_times_hide(served: Served, loaded: Loaded) -> None:
    """A stall of 0.8 s in 3 s: what was due meanwhile counts from when it was due, although it was served fast."""
    load = {"kind": "open", "rate_per_s": 50.0, "time_s": 3.0, "at_once": 1, "warmup": 1}
    result = loaded(served(), request="/work?stall_at=50", **load)

    assert max(result.latency_s) > 0.8
    assert percentile(sorted(result.latency_s), 0.90) > 0.3 > 10 * percentile(sorted(result.service_s), 0.90)
    assert result.missed > 20


def test_progress_is_told(served: Served, tmp_path: Path) -> None:
    """In requests, while they come."""
    told: list[tuple[int, int]] = []
    spec = LoadSpec(url=served().url, request="/work?sleep=0.05", requests=24)
    run_load(spec, folder=tmp_path, progress=lambda done, total: told.append((done, total)))

    assert {total for _, total in told} == {24}
    assert 0 < max(done for done, _ in told) <= 24


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"requests": None}, "a load run without an end"),
        ({"requests": 0}, "requests is 0: expected more than 0"),
        ({"users": 0}, "users is 0: expected more than 0"),
        ({"kind": "open"}, "an open-loop load without a rate"),
        (
            {"kind": "half-open"},
            "no locustfile 'half-open': give the path of a Python file, without a comma in it",
        ),
        ({"url": "127.0.0.1:8000"}, "'127.0.0.1:8000' is not the URL of a service"),
        ({"url": "http://127.0.0.1:1"}, "nothing responds at http://127.0.0.1:1 .*is the service running"),
    ],
)
def test_a_load_that_cannot_be_made_is_one_line(
    served: Served, tmp_path: Path, wrong: dict[str, object], message: str
) -> None:
    """Each names what was seen."""
    fields = {"url": served().url, "requests": 1, **wrong}

    with pytest.raises(LoadError, match=message):
        run_load(LoadSpec(**fields), folder=tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise Exception('no token')", "Exception: no token"),
    ],
)
def test_a_locustfile_that_breaks_is_told_with_its_error(
    served: Served, tmp_path: Path, source: str, message: str
) -> None:
    """Locust's own words are in the message."""
    broken = tmp_path / "broken.py"
    broken.write_text(f"{source}\n")

    with pytest.raises(LoadError, match=f"no request ended: {message}"):
        run_load(LoadSpec(url=served().url, kind=str(broken), requests=1), folder=tmp_path)


def bare_locust(kind: str, server: RunningServer, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`locust -f FILE --headless`, as by hand."""
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(resource_folder("locustfiles") / LOCUSTFILES[kind]),
        "--headless",
    ]
    return subprocess.run(
        [*command, "-H", server.url, *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["closed", "open", "noop"])
def test_bare_locust_runs_each_file(served: Served, tmp_path: Path, kind: str) -> None:
    """With nothing but locust's own options, for as long as its -t says; exit code 0."""
    ended = bare_locust(kind, served(), tmp_path, "-u", "2", "-r", "2", "-t", "1s")

    assert ended.returncode == 0, ended.stdout
    assert ("GET      /allocation_candidates" in ended.stdout) is (kind != "noop")


@pytest.mark.long
def test_bare_locust_fails_when_requests_fail(served: Served, tmp_path: Path) -> None:
    """A status that is not 200 gives exit code 1, also one that locust would let pass."""
    ended = bare_locust("closed", served(), tmp_path, "--candidates-path", "/work?status=202", "--requests", "2")

    assert ended.returncode == 1
    assert "status 202: boom" in ended.stdout


@pytest.mark.long
def test_bare_locust_fails_without_samples(served: Served, tmp_path: Path) -> None:
    """A run that ended before any request did gives exit code 1, and says how many were under way."""
    samples_file = tmp_path / "samples.json"
    ended = bare_locust(
        "closed",
        served(),
        tmp_path,
        *("--candidates-path", "/work?sleep=4", "-t", "1", "--stop-timeout", "1", "--samples-file", str(samples_file)),
    )

    assert ended.returncode == 1
    assert "no samples: not one request ended" in ended.stdout
    assert (LoadResult.load(samples_file).requests, LoadResult.load(samples_file).in_flight) == (0, 1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    """Before anything is sent; the line names the two ways to accept it."""
    options = ["-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "own.pem", "-subj", "/CN=own"]
    subprocess.run(["openssl", "req", "-x509", *options], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")

    def shake_hands() -> None:
        with suppress(OSError):
            context.wrap_socket(listening.accept()[0], server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=shake_hands, daemon=True).start()
        spec = LoadSpec(url=f"https://127.0.0.1:{listening.getsockname()[1]}", requests=1)
        with pytest.raises(
            LoadError, match=r"is not valid \(self-signed certificate\): .* SSL_CERT_FILE, or give --insecure"
        ):
            run_load(spec, folder=tmp_path)
