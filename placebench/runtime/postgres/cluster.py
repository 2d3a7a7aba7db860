"""A primary and its streaming replicas, each a private server, with failover: the main class is `Cluster`.

Clients find the primary and the replicas by libpq's own means: a URL with all hosts and `target_session_attrs`.
Replicas do the same, and therefore follow whichever node was promoted. There are no replication slots; every node
keeps the last 512 MB of the log for replicas that were disconnected.
"""

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self, get_args

from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from placebench.errors import DatabaseError
from placebench.runtime.network.link import Link, open_link_ahead
from placebench.runtime.network.namespaces import BLOCK
from placebench.runtime.ports import free_port
from placebench.runtime.postgres.binaries import find_binaries, make_runnable, private_folder, server_account
from placebench.runtime.postgres.connection import SUPERUSER, open_connection, own_url, with_database
from placebench.runtime.postgres.private_server import (
    ServerInstance,
    failure_reason,
    make_data,
    measuring_settings,
    one_line_errors,
    start_server,
    write_configuration,
)
from placebench.runtime.supervisor import Child, Supervisor, start_child

Who = Literal["services", "nodes"]
"""The clients of a node: services, or other nodes for replication."""
_DATABASE: Final = "placement"
_LOOPBACK: Final = "127.0.0.1"
_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.01
WRITER: Final = {"target_session_attrs": "read-write"}
READER: Final = {"target_session_attrs": "prefer-standby", "load_balance_hosts": "random"}
"""URL parameters for several nodes: `WRITER` leads to the primary; `READER` to any replica, or else to the primary."""
SETTINGS: Final = {
    # The data are throwaway, but a commit has to be in the log before its position is handed out, and pg_rewind needs
    # whole pages and hint bits there.
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_log_hints": "on",
    "wal_keep_size": "512MB",
    "wal_retrieve_retry_interval": "200ms",
    "shared_buffers": "128MB",
    # Reads of the service are short; replay waits for them instead of cancelling them.
    "max_standby_streaming_delay": "-1",
}


@dataclass
class ClusterNode:
    """One server of a cluster; *child* is the process that runs now, or that ran last."""

    name: str
    place: ServerInstance
    port: int
    supervisor: Supervisor
    child: Child | None = None
    links: dict[Who, Link] = field(default_factory=dict)
    """The network between the node and each kind of client, if it can be cut."""

    def port_for(self, who: Who) -> int:
        """Return the port to which these clients connect."""
        return self.links[who].port if self.links else self.port

    @property
    def is_running(self) -> bool:
        """Whether the node's process is running."""
        return self.child is not None and self.child.poll() is None


class Cluster:
    """A primary, and replicas after `add_replicas`; a context manager that ends and removes them all."""

    def __init__(self, replicas: int, *, cuttable: bool = False, address: str = _LOOPBACK) -> None:
        """Start the primary alone, with an empty database; takes about a second.

        address: the address of this machine to which services connect, without proxies.
        cuttable: services and nodes connect to a node through one proxy each, for `cut_off`; costs some 100 ms per
        proxy, and some 60 µs per round trip. Raises DatabaseError if there is no PostgreSQL, or if it does not start.
        """
        self._password = secrets.token_urlsafe(32)
        self._stack = ExitStack()
        self._is_synchronous = False
        self._is_cuttable = cuttable
        self._address = address
        self.nodes: list[ClusterNode] = []
        try:
            with one_line_errors("no PostgreSQL cluster could be made"):
                for number in range(replicas + 1):
                    node = new_node(f"node{number}", free_port())
                    self._stack.callback(node.supervisor.close)
                    if self._is_cuttable:
                        for who in get_args(Who):
                            node.links[who] = self._stack.enter_context(open_link_ahead(node.port))
                    self.nodes.append(node)
                clients = f"host all all {BLOCK} scram-sha-256\n" if self._address != _LOOPBACK else ""
                make_primary(self.nodes[0], self._password, self._addresses(), clients)
                self._start(self.nodes[0])
                create_database(self._password, _LOOPBACK, self.nodes[0].port)
        except BaseException:
            self._stack.close()
            raise
        self.primary = self.nodes[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def replicas(self) -> list[ClusterNode]:
        """The running nodes other than the primary."""
        return [node for node in self.nodes if node is not self.primary and node.is_running]

    @property
    def writer_url(self) -> str:
        """A URL with all nodes that leads to the primary."""
        return self._url_of(self.nodes, **WRITER)

    def reader_url(self, replicas: int) -> str:
        """Return a URL that leads to any of the first *replicas* replicas, or to the primary if none is running."""
        return self._url_of(self.nodes[: 1 + replicas], **READER)

    def url(self, node: ClusterNode) -> str:
        """Return the URL of the database on this node only."""
        return node_url(self._password, _LOOPBACK, node.port)

    def add_replicas(self, *, synchronous: bool = False) -> None:
        """Copy the primary to the other nodes, in parallel, and wait until they stream from it.

        synchronous: afterwards a commit returns only when every replica shows it (synchronous_commit = remote_apply).
        """

        def copy(node: ClusterNode) -> None:
            copy_primary(node, self._password, self._conninfo(), self._addresses())
            self._start(node)

        self._is_synchronous = synchronous and len(self.nodes) > 1
        with one_line_errors("no replica could be made"), ThreadPoolExecutor(max(1, len(self.nodes) - 1)) as pool:
            list(pool.map(copy, self.nodes[1:]))
        await_streams(self.url(self.primary), len(self.nodes) - 1)
        self._set_synchronous()

    def kill(self, node: ClusterNode) -> None:
        """Send SIGKILL to all processes of the node, and wait until they have ended."""
        assert node.child is not None
        node.child.kill()
        node.child.wait(_LIMIT_S)
        for link in node.links.values():
            if not link.is_cut:
                link.shut()

    def restart(self, node: ClusterNode) -> None:
        """Restart a killed replica, and wait until it streams."""
        self._start(node)
        await_streams(self.url(self.primary), len(self.replicas))

    def promote(self) -> ClusterNode:
        """Promote the replica that has received the most of the log, and return it; the old primary must have ended.

        SELECT pg_last_wal_receive_lsn(); SELECT pg_promote()
        """
        received = "SELECT pg_last_wal_receive_lsn() - '0/0'"
        positions = {node.name: self._scalar(node, received) for node in self.replicas}
        if not positions:
            raise DatabaseError("no replica is left that could be promoted")
        chosen = max(self.replicas, key=lambda node: positions[node.name])
        if not self._scalar(chosen, "SELECT pg_promote()"):
            raise DatabaseError(f"{chosen.name} was not promoted within 60 s")
        self.primary = chosen
        self._set_synchronous()
        return chosen

    def rejoin(self, node: ClusterNode) -> None:
        """Make a killed former primary a replica: pg_rewind undoes the changes that only this node had.

        `pg_rewind --source-server=… --write-recovery-conf`, which first recovers the data from the crash.
        """
        command = (
            *(node.place.binaries.program("pg_rewind"), f"--target-pgdata={node.place.data}", "--no-sync"),
            *(f"--source-server={self._conninfo()} dbname=postgres", "--write-recovery-conf"),
            f"--config-file={node.place.configuration}",
        )
        with one_line_errors("the former primary could not be made a replica"):
            _run(node, self._password, "pg_rewind", command)
            self.restart(node)

    @contextmanager
    def replay_paused(self, node: ClusterNode) -> Iterator[None]:
        """Pause the replay of the log, which the replica still receives, in the `with` block: pg_wal_replay_pause()."""
        with open_connection(self.url(node)) as connection:
            connection.exec_driver_sql("SELECT pg_wal_replay_pause()")
            try:
                yield
            finally:
                connection.exec_driver_sql("SELECT pg_wal_replay_resume()")

    @contextmanager
    def cut_off(self, node: ClusterNode, who: Who) -> Iterator[None]:
        """Pass nothing between the node and *who* in the `with` block: no connection ends, and none is refused.

        Data sent meanwhile arrives afterwards, unless the node has ended. Requires a cluster that is cuttable.
        """
        link = node.links[who]
        link.cut()
        try:
            yield
        finally:
            if not node.is_running:
                link.shut()
            link.heal()

    def _start(self, node: ClusterNode) -> None:
        node.child = start_server(node.place, node.supervisor, node.port)
        for link in node.links.values():
            link.open()

    def _addresses(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((_LOOPBACK, self._address)))

    def _conninfo(self) -> str:
        return conninfo([(_LOOPBACK, node.port_for("nodes")) for node in self.nodes])

    def _url_of(self, nodes: Iterable[ClusterNode], **more: str) -> str:
        return cluster_url(self._password, [(self._address, node.port_for("services")) for node in nodes], **more)

    def _set_synchronous(self) -> None:
        if self._is_synchronous:
            others = [node.name for node in self.nodes if node is not self.primary]
            wait_for_replicas(self.url(self.primary), others)

    def _scalar(self, node: ClusterNode, statement: str) -> int:
        with open_connection(self.url(node)) as connection:
            return int(connection.scalar(text(statement)) or 0)


def new_node(name: str, port: int) -> ClusterNode:
    """Return a node whose server does not run yet, with a supervisor that removes its folder."""
    account = server_account()
    place = ServerInstance(private_folder(account), make_runnable(find_binaries(), account), account)
    return ClusterNode(name, place, port, Supervisor(place.folder))


def make_primary(node: ClusterNode, password: str, addresses: Sequence[str], clients: str = "") -> None:
    """Make an empty primary that listens on *addresses*, without starting it; clients: lines for pg_hba.conf."""
    make_data(node.place, node.supervisor, password, _settings(node, addresses))
    # Replicas copy this file. Its folder belongs to the server's user, who could have put a link there for root.
    descriptor = os.open(node.place.data / "pg_hba.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "a") as stream:
        stream.write(clients)


def create_database(password: str, address: str, port: int) -> None:
    """Make the empty database of a cluster on its primary."""
    with open_connection(own_url(password, port, address)) as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {_DATABASE}")


def copy_primary(node: ClusterNode, password: str, source: str, addresses: Sequence[str]) -> None:
    """Make a replica by `pg_basebackup --write-recovery-conf` without starting it; source: from `conninfo`."""
    place = node.place
    place.account.enter(place.folder)
    place.data.mkdir(mode=0o700)
    place.account.own(place.data)
    write_configuration(place, _settings(node, addresses))
    command = (
        *(place.binaries.program("pg_basebackup"), f"--dbname={source}", f"--pgdata={place.data}"),
        *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
    )
    _run(node, password, "pg_basebackup", command)


def conninfo(nodes: Iterable[tuple[str, int]]) -> str:
    """Return libpq's connection string, without the password, for the primary among these addresses and ports."""
    hosts, ports = zip(*nodes, strict=True)
    given = {
        "host": ",".join(hosts),
        "port": ",".join(map(str, ports)),
        "user": SUPERUSER,
        "connect_timeout": "2",
        **WRITER,
    }
    return " ".join(f"{name}={value}" for name, value in given.items())


def node_url(password: str, address: str, port: int) -> str:
    """Return the URL of the database on one node."""
    return with_database(own_url(password, port, address), _DATABASE)


def cluster_url(password: str, nodes: Iterable[tuple[str, int]], **more: str) -> str:
    """Return the URL of the database on nodes with these addresses and ports; more: further libpq parameters."""
    hosts = tuple(f"{address}:{port}" for address, port in nodes)
    driver = make_url(own_url(password, 0)).drivername
    query = {"host": hosts, "connect_timeout": "2", **more}
    url = URL.create(driver, SUPERUSER, password, database=_DATABASE, query=query)
    return url.render_as_string(hide_password=False)


def wait_for_replicas(primary_url: str, names: Sequence[str]) -> None:
    """Make commits wait until all these nodes show them, whether the nodes run or not.

    ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (node1)'; … synchronous_commit = 'remote_apply'
    """
    with open_connection(primary_url) as connection:
        every = f"ANY {len(names)} ({', '.join(names)})"
        connection.exec_driver_sql(f"ALTER SYSTEM SET synchronous_standby_names = '{every}'")
        connection.exec_driver_sql("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


def await_streams(primary_url: str, count: int) -> None:
    """Wait until *count* replicas have caught up and stream from the primary; raises DatabaseError after 30 s."""
    give_up_at = time.monotonic() + _LIMIT_S
    with open_connection(primary_url) as connection:
        streaming = text("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        while connection.scalar(streaming) < count:
            if time.monotonic() > give_up_at:
                raise DatabaseError(f"not all of {count} replicas stream after {_LIMIT_S:g} s")
            time.sleep(_POLL_S)


def _settings(node: ClusterNode, addresses: Sequence[str]) -> dict[str, str]:
    # A replica tells the primary the name of its cluster; the primary waits for replicas by that name.
    own = {"listen_addresses": ",".join(addresses), "cluster_name": node.name}
    return measuring_settings(node.place) | SETTINGS | own


def _run(node: ClusterNode, password: str, name: str, command: tuple[str, ...]) -> None:
    """Run one of the node's programs to its end; raises DatabaseError with its message if it fails."""
    spec = node.place.spec(name, *command)
    environment = {**(spec.env or {}), "PGPASSWORD": password}
    child = start_child(replace(spec, env=environment), node.supervisor)
    if child.wait(_LIMIT_S):
        raise DatabaseError(f"{name} failed: {failure_reason(child, node.place)}")
