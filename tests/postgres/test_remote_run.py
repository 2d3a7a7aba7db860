"""Databases of a comparison on another machine: this one through a real sshd on loopback."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from loopback_sshd import write_hosts
from sqlalchemy import create_engine, text

from placebench.meters.remote_hosts import RemoteHost
from placebench.runtime.postgres import Server


def test_scratch_databases_on_a_named_server_go_with_the_connection(
    server: Server, ssh_host: RemoteHost, tmp_path: Path, eventually: Callable[..., bool]
) -> None:
    """As they do at Ctrl-C: nobody else would drop them there."""
    hosts = write_hosts(tmp_path / "hosts.toml", ssh_host, f'roles = ["service"]\npython = "{sys.executable}"')
    argv = [sys.executable, "-m", "placebench", "compare", "naive", "tuned", "--trees", "5", "--server", server.url]
    argv += ["-o", str(tmp_path / "cut-run"), "--host", "here", "--hosts", str(hosts)]
    engine = create_engine(server.url)

    def is_there() -> bool:
        with engine.connect() as connection:
            return bool(connection.scalar(text("SELECT count(*) FROM pg_database WHERE datname ~ 'cut_run'")))

    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        assert eventually(is_there, limit_s=60)
        (ssh,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(ssh), signal.SIGKILL)
        process.communicate(timeout=60)

    assert process.returncode == 2
    assert eventually(lambda: not is_there())
    engine.dispose()
