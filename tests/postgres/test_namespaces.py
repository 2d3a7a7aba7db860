"""Service hosts with networks of their own (`lab scaleout --namespaces`), where this machine makes any."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.compare.what.http_request import fetch
from placebench.errors import ServerError
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.scaleout.cluster import ScaleOut
from placebench.runtime.network.namespaces import host_networks
from placebench.runtime.running_server import ServerSpec


@pytest.mark.long
def test_each_host_has_a_network_of_its_own(eventually: Callable[[Callable[[], bool]], bool]) -> None:
    """At an address of its own, from which it reads the replica, also when it is started again; links go at the end.

    Takes some seconds: a cluster whose servers listen on the links.
    """
    allowed_or_skip()
    topology = find_topology("nested-perfload", trees=4)
    spec = ServerSpec(database_url="", variant="dedup")

    def fill(url: str) -> None:
        seed(topology, url)

    with ScaleOut(spec, fill, hosts=2, replicas=1, namespaces=True) as scaled:
        urls = [host.url for host in scaled.hosts]
        networks = [namespace_of(host.pid) for host in scaled.hosts]
        scaled.kill_host(0)
        scaled.restart_host(0)

        assert len({namespace_of(os.getpid()), *networks}) == 3
        assert [host.url for host in scaled.hosts] == urls
        assert [namespace_of(host.pid) for host in scaled.hosts] == networks
        assert {fetch(url, topology.request).status for url in (*urls, scaled.url)} == {200}
        assert set(scaled.isolation()["network"].values()) == {url.split("/")[2].split(":")[0] for url in urls}
        assert len(links()) == 2
    assert eventually(lambda: not links())


def test_a_machine_without_the_programs_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is not Linux."""
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ServerError, match="Linux, root and iproute2"), host_networks(1):
        pass


def allowed_or_skip() -> None:
    try:
        with host_networks(1):
            pass
    except ServerError as error:
        pytest.skip(str(error))


def namespace_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


def links() -> list[Path]:
    """On this machine, of this process."""
    return list(Path("/sys/class/net").glob(f"pb{os.getpid()}-*"))
