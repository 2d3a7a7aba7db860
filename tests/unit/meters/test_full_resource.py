"""What was full, by the readings at the highest throughput."""

import pytest

from placebench.meters.full_resource import name_full
from placebench.meters.readings import Full, Usage
from placebench.report.knee import FULL_TEXTS

IDLE = Usage(machine_cpu=0.2, process_cpu=0.1, processes=1, threads=9, busiest_process=0.1)


@pytest.mark.parametrize(
    ("usage", "throughput_per_s", "client_cpu", "full", "why"),
    [
        (IDLE, 5000, 0.9, "generator", "the load generator used 90 % of a core"),
        (
            Usage(process_cpu=1.9, processes=2, threads=2, busiest_process=0.96),
            200,
            0.2,
            "worker CPU",
            "2 processes used 190 % of a core",
        ),
        (
            Usage(process_cpu=1.0, processes=3, threads=3, busiest_process=0.98),
            100,
            0.2,
            "one thread",
            "one of 3 processes used 98 % of a core",
        ),
        (
            Usage(process_cpu=1.2, processes=4, threads=8, busiest_process=0.98, busiest_is_master=True),
            900,
            0.2,
            "single-threaded master",
            "the master process used 98 % of a core",
        ),
        (
            Usage(machine_cpu=0.99, process_cpu=1.1, processes=2, threads=4, busiest_process=0.6, database_cpu=0.5),
            200,
            0.3,
            "worker CPU",
            "all cores were busy: service 110 %, database 50 % and load generator 30 % of a core",
        ),
        (
            Usage(machine_cpu=0.9, process_cpu=0.8, processes=1, threads=8, busiest_process=0.8, starved=0.9),
            200,
            0.1,
            "worker CPU",
            "1 process used 80 % of a core, and threads that could run waited for one",
        ),
        (
            Usage(process_cpu=0.2, processes=1, threads=9, busiest_process=0.2, running=1.0, busiest_backend=0.97),
            40,
            0.1,
            "database CPU",
            "one session used 97 % of a core",
        ),
        (
            Usage(process_cpu=0.2, processes=1, threads=9, running=1.0, locked=6.5, reading=0.0, in_use=8, sessions=8),
            40,
            0.1,
            "database lock",
            "6.5 of 7.5 sessions at work waited for a lock",
        ),
        (
            Usage(process_cpu=0.2, processes=1, threads=9, running=0.5, locked=0.0, reading=3.0),
            40,
            0.1,
            "disk",
            "3.0 of 3.5 sessions at work waited for a file",
        ),
        (
            Usage(process_cpu=0.2, processes=1, threads=9, busiest_process=0.2, blocked=0.8),
            100,
            0.1,
            "disk",
            "0.8 threads waited for a disk at any moment",
        ),
        (
            Usage(process_cpu=0.2, processes=1, threads=9, in_use=2.0, sessions=2.0, running=0.0),
            200,
            0.1,
            "pool wait",
            "2.0 of 2.0 sessions of the database were in use, 2.0 requests were served at once by 9 threads",
        ),
        (IDLE, 100, 0.1, "one lock", "1.0 requests were served at once by 9 threads"),
        (IDLE, 780, 0.1, "workers", "7.8 requests were served at once by 9 threads"),
        (IDLE, 300, 0.1, "limit", "3.0 requests were served at once by 9 threads"),
        (IDLE, 3000, 0.1, "nothing", "32 users were served at once, and more would be"),
        (
            IDLE,
            30,
            0.1,
            "unknown",
            "0.3 requests were served at once by 9 threads: requests take longer than alone, and no reading says why",
        ),
        (Usage(machine_cpu=0.2), 100, 0.1, "unknown", "the processes of the service are not to be seen from here"),
    ],
)
def test_what_was_full(usage: Usage, throughput_per_s: float, client_cpu: float, full: Full, why: str) -> None:
    """A request alone takes 10 ms: with 100 a second one is served at once, by Little's law."""
    found = name_full(usage, users=32, throughput_per_s=throughput_per_s, alone_s=0.01, client_cpu=client_cpu, cores=2)

    assert (full, why) == found
    assert full in FULL_TEXTS
