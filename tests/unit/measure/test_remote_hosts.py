"""Machines by SSH: a real sshd of this account on loopback, where one is installed."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.errors import ServerError, UsageError
from placebench.measure.remote_hosts import RemoteHost, inspect_host, read_hosts
from placebench.runtime.postgres.private_server import free_port

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SEPARATION = Path("/run/sshd")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteHost]:
    """This machine through an sshd on a free port, with a key that is thrown away."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd is installed on this machine: apt install openssh-server")
    if os.geteuid() == 0 and not SEPARATION.is_dir():
        pytest.skip(f"sshd needs the folder {SEPARATION} as root")
    folder, port = tmp_path_factory.mktemp("sshd"), free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    settings = [f"ListenAddress=127.0.0.1:{port}", f"HostKey={folder}/host", f"AuthorizedKeysFile={folder}/client.pub"]
    settings += ["PidFile=none", "StrictModes=no", "UsePAM=no", "PasswordAuthentication=no", "PermitRootLogin=yes"]
    options = [part for each in settings for part in ("-o", each)]
    with subprocess.Popen([SSHD, "-D", "-e", "-f", os.devnull, *options], stderr=subprocess.DEVNULL) as process:
        wait_until_it_listens(port)
        known = ("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder}/known")
        only = ("-F", os.devnull, "-o", "IdentitiesOnly=yes", "-i", f"{folder}/client", "-p", str(port))
        yield RemoteHost(f"{getpass.getuser()}@127.0.0.1", ("service",), ssh_options=(*only, *known))
        process.terminate()


def wait_until_it_listens(port: int) -> None:
    give_up_at = time.monotonic() + 20
    while time.monotonic() < give_up_at:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"sshd does not listen on port {port}")


def write_hosts(path: Path, host: RemoteHost, more: str) -> Path:
    options = ", ".join(f'"{each}"' for each in host.ssh_options)
    path.write_text(f'[hosts.here]\nssh = "{host.ssh}"\nssh_options = [{options}]\n{more}\n')
    return path


def test_a_host_is_looked_at(host: RemoteHost) -> None:
    """Its system, its programs and the ports that are taken; the true offset of the same clock, 0, is in the bounds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        facts = inspect_host(host)

        assert listening.getsockname()[1] in facts.listening
    assert facts.programs["system"].startswith("Linux ")
    assert facts.clock is not None
    assert facts.clock.low_s <= 0 <= facts.clock.high_s
    assert facts.clock.uncertainty_s < 0.5


def test_doctor_tells_what_a_role_lacks(host: RemoteHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A taken port is missing, and so exit code 2; its clock is compared."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        hosts = write_hosts(tmp_path / "hosts.toml", host, f'roles = ["balancer"]\nports = [{port}]')
        exit_code = main(["doctor", "--hosts", str(hosts)])

    lines = {" ".join(line.split()[:3]): line for line in capsys.readouterr().out.splitlines()}
    assert exit_code == 2
    assert f"taken: {port}" in lines["missing here ports"]
    assert "ours" in lines["well here clock"]
    assert {"here uv", "here nginx"} <= {line.partition(" ")[2] for line in lines}


def test_a_host_that_does_not_let_us_in_is_one_line(host: RemoteHost) -> None:
    """With what ssh said."""
    with pytest.raises(ServerError, match="Permission denied"):
        inspect_host(RemoteHost(host.ssh, (), ssh_options=(*host.ssh_options, "-o", "PubkeyAuthentication=no")))


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
