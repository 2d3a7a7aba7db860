"""This machine as one that is reached by SSH: a real sshd on loopback, with keys that are thrown away."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placebench.meters.remote_hosts import RemoteHost
from placebench.runtime.ports import free_port

_SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
_SEPARATION = Path("/run/sshd")
"""Where sshd confines its processes when it is started by root; Debian's service makes it at its own start."""


@contextmanager
def loopback_sshd(folder: Path) -> Iterator[RemoteHost]:
    """An sshd on a free port, of this account; the test is skipped where none is installed."""
    if _SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd is installed on this machine: apt install openssh-server")
    if os.geteuid() == 0:
        _SEPARATION.mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    settings = [f"ListenAddress=127.0.0.1:{port}", f"HostKey={folder}/host", f"AuthorizedKeysFile={folder}/client.pub"]
    settings += ["PidFile=none", "StrictModes=no", "UsePAM=no", "PasswordAuthentication=no", "PermitRootLogin=yes"]
    options = [part for each in settings for part in ("-o", each)]
    with subprocess.Popen([_SSHD, "-D", "-e", "-f", os.devnull, *options], stderr=subprocess.DEVNULL) as process:
        _wait_until_it_listens(port)
        known = ("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder}/known")
        only = ("-F", os.devnull, "-o", "IdentitiesOnly=yes", "-i", f"{folder}/client", "-p", str(port))
        yield RemoteHost(f"{getpass.getuser()}@127.0.0.1", ("service",), ssh_options=(*only, *known))
        process.terminate()


def _wait_until_it_listens(port: int) -> None:
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
    """A hosts file with this host, called here, and *more* keys of it."""
    options = ", ".join(f'"{each}"' for each in host.ssh_options)
    path.write_text(f'[hosts.here]\nssh = "{host.ssh}"\nssh_options = [{options}]\n{more}\n')
    return path
