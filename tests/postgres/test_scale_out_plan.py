"""The databases of a plan for other machines, by its own commands and scripts, without containers.

primary (127.0.0.2) ──▶ replica1 (127.0.0.3), at one port, as in containers
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import yaml
from sqlalchemy.engine import URL

from placebench.errors import PlacebenchError
from placebench.lab.scaleout.files import ScaleOutPlan
from placebench.runtime.ports import free_port
from placebench.runtime.postgres import open_connection
from placebench.runtime.postgres.binaries import find_binaries, make_runnable, private_folder, server_account
from placebench.runtime.supervisor import Child, ChildSpec, Supervisor, start_child

ADDRESSES = {"primary": "127.0.0.2", "replica1": "127.0.0.3"}
ENTRY_POINT = """
set -e
initdb --username=placebench --pwfile=../password --auth-local=trust --auth-host=scram-sha-256 --no-sync
echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
export PGHOST="$PGDATA"
pg_ctl --wait --options="-c listen_addresses='' -k '$PGDATA'" start
createdb --username=placebench placement
sh ../primary.sh
pg_ctl --mode=fast stop
exec "$@"
"""
"""What that of the image does for the primary: initdb, a server on its socket alone that takes primary.sh."""


def test_a_commit_is_on_the_replica_of_a_synchronous_plan(tmp_path: Path, eventually: Callable[..., bool]) -> None:
    """The replica copies the primary, is waited for by its name, and shows what is committed. Takes two servers."""
    plan = ScaleOutPlan(
        variant="dedup",
        revisions=(),
        data=(),
        hosts=1,
        replicas=1,
        processes=1,
        threads=1,
        synchronous=True,
        port=8000,
        load_workers=0,
    )
    scripts = {path.name: path.read_text() for path in plan.write("compose", tmp_path / "plan")}
    services = yaml.safe_load(scripts["compose.yaml"])["services"]
    port = free_port()
    shell, _, *arguments = services["replica1"]["command"]
    arguments[1] = ",".join(ADDRESSES[node] for node in arguments[1].split(","))
    commands = {
        "primary": ["sh", "-c", ENTRY_POINT, *services["primary"]["command"]],
        "replica1": [shell, "../replica.sh", *arguments],
    }

    with ExitStack() as stack:
        for name, command in commands.items():
            child = container(stack, name, command, scripts, port)
            assert eventually(partial(takes_connections, name, port, child), limit_s=60)

        primary, replica = (stack.enter_context(open_connection(url(name, port))) for name in ADDRESSES)
        standby = "SELECT application_name, sync_state FROM pg_stat_replication WHERE state = 'streaming'"
        assert eventually(lambda: primary.exec_driver_sql(standby).all() == [("replica1", "quorum")], limit_s=60)
        assert primary.exec_driver_sql("SHOW synchronous_commit").scalar() == "remote_apply"
        primary.exec_driver_sql("CREATE TABLE written AS SELECT 1")
        assert replica.exec_driver_sql("SELECT count(*) FROM written").scalar() == 1


def container(stack: ExitStack, name: str, command: list[str], scripts: dict[str, str], port: int) -> Child:
    """The command in the data folder of a node, as the account of servers, with the scripts and a password beside."""
    account = server_account()
    folder = private_folder(account)
    supervisor = Supervisor(folder)
    stack.callback(supervisor.close)
    account.enter(folder)
    for file, text in {**scripts, "password": "secret"}.items():
        (folder / file).write_text(text)
        (folder / file).chmod(0o644)
    data = folder / "data"
    data.mkdir(mode=0o700)
    account.own(data)
    environment = {
        "PATH": f"{make_runnable(find_binaries(), account).folder}:{os.environ['PATH']}",
        "PGDATA": str(data),
        "PGPORT": str(port),
        "PGPASSWORD": "secret",
        "POSTGRES_USER": "placebench",
        "POSTGRES_DB": "placement",
    }
    own = ["-c", f"listen_addresses={ADDRESSES[name]}", "-c", "unix_socket_directories="]
    spec = ChildSpec(name, [*command, *own], environment, data, folder / "log", account.ids, data=data)
    return start_child(spec, supervisor)


def takes_connections(name: str, port: int, child: Child) -> bool:
    assert child.poll() is None, child.log_tail()
    try:
        with open_connection(url(name, port)):
            return True
    except PlacebenchError:
        return False


def url(name: str, port: int) -> str:
    made = URL.create("postgresql+psycopg2", "placebench", "secret", ADDRESSES[name], port, "placement")
    return made.render_as_string(hide_password=False)
