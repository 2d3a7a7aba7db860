"""A primary and its streaming replicas, each a private server of its own, with failover: the main class is `Cluster`.

Whoever connects finds the primary and the replicas by libpq's own means, a URL with all hosts and
`target_session_attrs`. So do the replicas, which therefore follow whichever node was promoted. There are no replication
slots; every node keeps the last 512 MB of the log for those that were away.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Literal, Self, get_args

from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from placebench.errors import DatabaseError
from placebench.runtime.network.link import Link, open_link_ahead
from placebench.runtime.network.namespaces import BLOCK
from placebench.runtime.postgres.binaries import find_binaries, make_runnable, private_folder, server_account
from placebench.runtime.postgres.connection import SUPERUSER, open_connection, own_url, with_database
from placebench.runtime.postgres.private_server import (
    ServerInstance,
    failure_reason,
    free_port,
    make_data,
    measuring_settings,
    one_line_errors,
    start_server,
    write_configuration,
)
from placebench.runtime.supervisor import Child, Supervisor, start_child

Who = Literal["services", "nodes"]
"""Who connects to a node: services, or other nodes for replication."""
_DATABASE: Final = "placement"
_LOOPBACK: Final = "127.0.0.1"
_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.01
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
    # Reads are never cancelled for the sake of replay; those of the service are short.
    "max_standby_streaming_delay": "-1",
}


@dataclass
class ClusterNode:
    """One server of a cluster; *child* is the one that runs now, or ran last."""

    name: str
    place: ServerInstance
    port: int
    supervisor: Supervisor
    child: Child | None = None
    links: dict[Who, Link] = field(default_factory=dict)
    """The network between others and the node, where it can be cut."""

    def port_for(self, who: Who) -> int:
        """Where they connect."""
        return self.links[who].port if self.links else self.port

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self.child is not None and self.child.poll() is None


class Cluster:
    """A primary, and replicas once `add_replicas` was called; a context manager that ends and removes them all."""

    def __init__(self, replicas: int, *, cuttable: bool = False, address: str = _LOOPBACK) -> None:
        """Start the primary alone, with an empty database; takes about a second.

        address: of this machine, that services connect to, without proxies.
        cuttable: services and nodes connect to a node through a proxy each, for `cut_off`; costs some 100 ms for each,
        and some 60 µs per round trip. Raises DatabaseError where there is no PostgreSQL, or where it does not start.
        """
        self._password = secrets.token_urlsafe(32)
        self._stack = ExitStack()
        self._is_synchronous = False
        self._is_cuttable = cuttable
        self._address = address
        self.nodes: list[ClusterNode] = []
        try:
            with one_line_errors("no PostgreSQL cluster could be made"):
                self.nodes.extend(self._make_node(number) for number in range(replicas + 1))
                self._start_primary(self.nodes[0])
        except BaseException:
            self._stack.close()
            raise
        self.primary = self.nodes[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def replicas(self) -> list[ClusterNode]:
        """The nodes that run and are not the primary."""
        return [node for node in self.nodes if node is not self.primary and node.is_running]

    @property
    def writer_url(self) -> str:
        """A URL of all nodes, that leads to the one that takes writes."""
        return self._url_of(self.nodes, target_session_attrs="read-write")

    def reader_url(self, replicas: int) -> str:
        """A URL of the first nodes, that leads to any of so many replicas, or where there is none to the primary."""
        nodes = self.nodes[: 1 + replicas]
        return self._url_of(nodes, target_session_attrs="prefer-standby", load_balance_hosts="random")

    def url(self, node: ClusterNode) -> str:
        """The URL of the database on this node alone."""
        return with_database(own_url(self._password, node.port), _DATABASE)

    def add_replicas(self, *, synchronous: bool = False) -> None:
        """Copy the primary to the other nodes, side by side, and wait until they stream from it.

        synchronous: from then on a commit returns when every replica shows it (synchronous_commit = remote_apply).
        """
        self._is_synchronous = synchronous and len(self.nodes) > 1
        with one_line_errors("no replica could be made"), ThreadPoolExecutor(max(1, len(self.nodes) - 1)) as pool:
            list(pool.map(self._copy_primary, self.nodes[1:]))
        self._await_streams(len(self.nodes) - 1)
        self._set_synchronous()

    def kill(self, node: ClusterNode) -> None:
        """SIGKILL to all processes of the node, and wait until they are gone."""
        assert node.child is not None
        node.child.kill()
        node.child.wait(_LIMIT_S)
        for link in node.links.values():
            if not link.is_cut:
                link.shut()

    def restart(self, node: ClusterNode) -> None:
        """Start a replica again that was killed, and wait until it streams."""
        self._start(node)
        self._await_streams(len(self.replicas))

    def promote(self) -> ClusterNode:
        """Make the replica that has most of the log the primary, and return it; the old one has to be gone.

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
        """Make a replica of a former primary that was killed: pg_rewind takes back what only that one had.

        `pg_rewind --source-server=… --write-recovery-conf`, which first recovers the data from the crash.
        """
        command = (
            *(node.place.binaries.program("pg_rewind"), f"--target-pgdata={node.place.data}", "--no-sync"),
            *(f"--source-server={self._conninfo(dbname='postgres')}", "--write-recovery-conf"),
            f"--config-file={node.place.configuration}",
        )
        with one_line_errors("the former primary could not be made a replica"):
            self._run(node, "pg_rewind", command)
            self.restart(node)

    @contextmanager
    def replay_paused(self, node: ClusterNode) -> Iterator[None]:
        """The replica gets the log, and does not apply it meanwhile: pg_wal_replay_pause()."""
        with open_connection(self.url(node)) as connection:
            connection.exec_driver_sql("SELECT pg_wal_replay_pause()")
            try:
                yield
            finally:
                connection.exec_driver_sql("SELECT pg_wal_replay_resume()")

    @contextmanager
    def cut_off(self, node: ClusterNode, who: Who) -> Iterator[None]:
        """Let nothing pass between the node and others meanwhile: no connection ends, and none is refused.

        What was sent meanwhile arrives afterwards, unless the node has ended. For a cluster that is cuttable.
        """
        link = node.links[who]
        link.cut()
        try:
            yield
        finally:
            if not node.is_running:
                link.shut()
            link.heal()

    def _make_node(self, number: int) -> ClusterNode:
        account = server_account()
        place = ServerInstance(private_folder(account), make_runnable(find_binaries(), account), account)
        supervisor = Supervisor(place.folder)
        self._stack.callback(supervisor.close)
        node = ClusterNode(f"node{number}", place, free_port(), supervisor)
        if self._is_cuttable:
            for who in get_args(Who):
                node.links[who] = self._stack.enter_context(open_link_ahead(node.port))
        return node

    def _start(self, node: ClusterNode) -> None:
        node.child = start_server(node.place, node.supervisor, node.port)
        for link in node.links.values():
            link.open()

    def _start_primary(self, node: ClusterNode) -> None:
        make_data(node.place, node.supervisor, self._password, self._settings(node))
        if self._address != _LOOPBACK:
            with (node.place.data / "pg_hba.conf").open("a") as stream:  # the replicas copy it
                stream.write(f"host all all {BLOCK} scram-sha-256\n")
        self._start(node)
        with open_connection(own_url(self._password, node.port)) as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {_DATABASE}")

    def _copy_primary(self, node: ClusterNode) -> None:
        """Make a replica by `pg_basebackup --write-recovery-conf`, and start it."""
        place = node.place
        place.account.enter(place.folder)
        place.data.mkdir(mode=0o700)
        place.account.own(place.data)
        write_configuration(place, self._settings(node))
        command = (
            *(place.binaries.program("pg_basebackup"), f"--dbname={self._conninfo()}", f"--pgdata={place.data}"),
            *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        )
        self._run(node, "pg_basebackup", command)
        self._start(node)

    def _settings(self, node: ClusterNode) -> dict[str, str]:
        # A replica tells the primary the name of its cluster; the primary waits for replicas by that name.
        addresses = {"listen_addresses": ",".join(dict.fromkeys((_LOOPBACK, self._address)))}
        return measuring_settings(node.place) | SETTINGS | addresses | {"cluster_name": node.name}

    def _conninfo(self, **more: str) -> str:
        """Where the primary is, as libpq wants it; without the password, which the environment has."""
        ports = ",".join(str(node.port_for("nodes")) for node in self.nodes)
        given = {
            "host": ",".join(_LOOPBACK for _ in self.nodes),
            "port": ports,
            "user": SUPERUSER,
            "target_session_attrs": "read-write",
            "connect_timeout": "2",
            **more,
        }
        return " ".join(f"{name}={value}" for name, value in given.items())

    def _run(self, node: ClusterNode, name: str, command: tuple[str, ...]) -> None:
        """Run a program of the node to its end; raises DatabaseError with what it said if it fails."""
        spec = node.place.spec(name, *command)
        environment = {**(spec.env or {}), "PGPASSWORD": self._password}
        child = start_child(replace(spec, env=environment), node.supervisor)
        if child.wait(_LIMIT_S):
            raise DatabaseError(f"{name} failed: {failure_reason(child, node.place)}")

    def _url_of(self, nodes: Iterable[ClusterNode], **more: str) -> str:
        hosts = tuple(f"{self._address}:{node.port_for('services')}" for node in nodes)
        query = {"host": hosts, "connect_timeout": "2", **more}
        driver = make_url(own_url(self._password, 0)).drivername
        url = URL.create(driver, SUPERUSER, self._password, database=_DATABASE, query=query)
        return url.render_as_string(hide_password=False)

    def _set_synchronous(self) -> None:
        """Let commits wait for all other nodes, whether they run or not.

        ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (node1)'; … synchronous_commit = 'remote_apply'
        """
        if not self._is_synchronous:
            return
        others = [node.name for node in self.nodes if node is not self.primary]
        with open_connection(self.url(self.primary)) as connection:
            names = f"ANY {len(others)} ({', '.join(others)})"
            connection.exec_driver_sql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            connection.exec_driver_sql("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
            connection.exec_driver_sql("SELECT pg_reload_conf()")

    def _await_streams(self, count: int) -> None:
        """Wait until so many replicas have caught up with the primary; DatabaseError after 30 s."""
        give_up_at = time.monotonic() + _LIMIT_S
        with open_connection(self.url(self.primary)) as connection:
            streaming = text("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
            while connection.scalar(streaming) < count:
                if time.monotonic() > give_up_at:
                    raise DatabaseError(f"not all of {count} replicas stream after {_LIMIT_S:g} s")
                time.sleep(_POLL_S)

    def _scalar(self, node: ClusterNode, statement: str) -> int:
        with open_connection(self.url(node)) as connection:
            return int(connection.scalar(text(statement)) or 0)
