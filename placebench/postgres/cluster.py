"""A data folder and its settings: what `initdb` is asked for, and what `postgresql.conf` says.

The settings are those of a benchmark whose data is thrown away: nothing is written through to the disk, no process
works beside the backend that answers (its CPU time is what gets measured), and a login costs next to nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from placebench.postgres.binaries import Binaries

SUPERUSER = "postgres"


def initdb_command(binaries: Binaries, version: int, data: Path, password_file: Path) -> list[str]:
    """The command line that makes the data folder.

    `scram_iterations=1` holds for the superuser's own password only when initdb knows it (PostgreSQL 16 and later): a
    login costs 2.4 ms then, instead of 8.5 ms with the usual 4096 rounds. The password has 256 random bits anyway.
    """
    quick_login = ["-c", "scram_iterations=1"] if version >= 16 else []
    return [
        str(binaries.initdb),
        f"--pgdata={data}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        *(["--no-instructions"] if version >= 14 else []),
        *quick_login,
    ]


def base_settings(version: int) -> dict[str, str]:
    """What every server of ours is told: reachable by TCP from this machine alone."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "off",
    }
    return settings | ({"scram_iterations": "1"} if version >= 16 else {})


def benchmark_settings(binaries: Binaries, version: int) -> dict[str, str]:
    """What a server is told that lives for one run."""
    settings = {
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        "shared_preload_libraries": ",".join(binaries.preloadable()),
    }
    return base_settings(version) | settings | ({"io_method": "sync"} if version >= 18 else {})


def write_settings(data: Path, settings: Mapping[str, str]) -> None:
    """Append *settings* to the data folder's postgresql.conf: the last mention of a setting wins."""
    lines = (f"{name} = '{_quoted(value)}'\n" for name, value in settings.items())
    with (data / "postgresql.conf").open("a") as stream:
        stream.writelines(("\n# placebench\n", *lines))


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
