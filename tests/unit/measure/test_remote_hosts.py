"""Machines by SSH: a real sshd of this account on loopback, where one is installed."""

import socket
from pathlib import Path

import pytest
from loopback_sshd import write_hosts

from placebench.cli import main
from placebench.errors import ServerError, UsageError
from placebench.measure.remote_hosts import RemoteHost, inspect_host, read_hosts


def test_a_host_is_looked_at(ssh_host: RemoteHost) -> None:
    """Its system, its programs and the ports that are taken; the true offset of the same clock, 0, is in the bounds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        facts = inspect_host(ssh_host)

        assert listening.getsockname()[1] in facts.listening
    assert facts.programs["system"].startswith("Linux ")
    assert facts.clock is not None
    assert facts.clock.low_s <= 0 <= facts.clock.high_s
    assert facts.clock.uncertainty_s < 0.5


def test_doctor_tells_what_a_role_lacks(
    ssh_host: RemoteHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A taken port is missing, and so exit code 2; its clock is compared."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        hosts = write_hosts(tmp_path / "hosts.toml", ssh_host, f'roles = ["balancer"]\nports = [{port}]')
        exit_code = main(["doctor", "--hosts", str(hosts)])

    lines = {" ".join(line.split()[:3]): line for line in capsys.readouterr().out.splitlines()}
    assert exit_code == 2
    assert f"taken: {port}" in lines["missing here ports"]
    assert "ours" in lines["well here clock"]
    assert {"here uv", "here nginx"} <= {line.partition(" ")[2] for line in lines}


def test_a_host_that_does_not_let_us_in_is_one_line(ssh_host: RemoteHost) -> None:
    """With what ssh said."""
    with pytest.raises(ServerError, match="Permission denied"):
        inspect_host(RemoteHost(ssh_host.ssh, (), ssh_options=(*ssh_host.ssh_options, "-o", "PubkeyAuthentication=no")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ssh = "a"\nroles = ["web"]', "expected one of balancer, database, load, service"),
        ('ssh = "a"\nroles = []\nport = 80', "port"),
        ('ssh = "a"\nroles = []\nports = [70000]', "expected a whole number <= 65535"),
    ],
)
def test_a_hosts_file_with_a_wrong_key_or_value_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A role that nobody knows, a misspelled key, a port that is none."""
    path = tmp_path / "hosts.toml"
    path.write_text(f"[hosts.one]\n{text}\n")

    with pytest.raises(UsageError, match=message):
        read_hosts(path)
