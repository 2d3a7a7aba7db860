"""The script by which a replica of the written plan is made, with a real PostgreSQL on this machine."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from placebench.lab.scaleout.files import ScaleOutPlan
from placebench.runtime.ports import free_port
from placebench.runtime.postgres import open_connection
from placebench.runtime.postgres.binaries import find_binaries, make_runnable, private_folder, server_account
from placebench.runtime.postgres.cluster import Cluster

LIMIT_S = 30


@contextmanager
def run_script(script: Path, *arguments: str, **environment: str) -> Iterator[None]:
    """Run it as the account that PostgreSQL runs as, with its data in a folder of its own; end and remove both."""
    account = server_account()
    binaries, folder = make_runnable(find_binaries(), account), private_folder(account)
    folder.mkdir()
    account.own(folder)
    identity = {} if account.ids is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    path = {"PATH": f"{binaries.folder}:{os.environ['PATH']}", "PGDATA": str(folder / "data")}
    with script.open() as text:
        process = subprocess.Popen(
            ["sh", "-s", *arguments], stdin=text, env={**path, **environment}, cwd="/", **identity
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        shutil.rmtree(folder)


def test_the_replica_of_the_plan_follows_the_primary(tmp_path: Path) -> None:
    """It copies a running primary and streams from it under its own name, by which synchronous commits wait for it."""
    plan = ScaleOutPlan("dedup", (), (), 1, 1, 1, 1, synchronous=True, port=8000, load_workers=0)
    plan.write("compose", tmp_path / "plan")
    address = (f"port={free_port()}", "listen_addresses=127.0.0.1", "unix_socket_directories=")
    settings = [part for each in (*address, "max_connections=200") for part in ("-c", each)]
    # pg_basebackup streams too, while it copies.
    streaming = (
        "SELECT application_name FROM pg_stat_replication "
        "WHERE state = 'streaming' AND application_name <> 'pg_basebackup'"
    )
    with Cluster(0) as cluster:
        url = make_url(cluster.url(cluster.primary))
        login = {"PGPORT": str(url.port), "PGPASSWORD": str(url.password)}
        with open_connection(cluster.url(cluster.primary)) as primary:
            primary.exec_driver_sql(f"CREATE ROLE placebench SUPERUSER LOGIN PASSWORD '{url.password}'")
            with run_script(tmp_path / "plan" / "replica.sh", "replica1", "127.0.0.1", *settings, **login):
                give_up_at = time.monotonic() + LIMIT_S
                while (found := primary.exec_driver_sql(streaming).scalar()) is None and time.monotonic() < give_up_at:
                    time.sleep(0.05)

    assert found == "replica1"
