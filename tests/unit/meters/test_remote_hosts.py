"""Machines by SSH: a real sshd of this account on loopback, where one is installed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from loopback_sshd import write_hosts

from placebench.cli import main
from placebench.errors import ServerError, UsageError
from placebench.meters.remote_hosts import RemoteHost, inspect_host, python_command, read_greeting, read_hosts

pytestmark = pytest.mark.processes


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
    assert "ours" in lines["ok here clock"]
    assert {"here uv", "here nginx"} <= {line.partition(" ")[2] for line in lines}


def test_a_host_that_does_not_let_us_in_is_one_line(ssh_host: RemoteHost) -> None:
    """With what ssh said."""
    with pytest.raises(ServerError, match="Permission denied"):
        inspect_host(RemoteHost(ssh_host.ssh, (), ssh_options=(*ssh_host.ssh_options, "-o", "PubkeyAuthentication=no")))


@pytest.mark.parametrize("command", ["placebench", "uvx"])
def test_a_program_is_run_by_the_placebench_there_or_uvx(command: str, tmp_path: Path) -> None:
    """It greets with its version; uvx is asked for the same one."""
    texts = {"placebench": f"#!{sys.executable}\n", "uvx": f'#!/bin/sh\nshift 4; exec {sys.executable} "$@"\n'}
    (tmp_path / command).write_text(texts[command])
    (tmp_path / command).chmod(0o755)
    script = python_command(RemoteHost("x", ()), "print('it''s run')")[-1]
    variables = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.defpath}"}
    lines = iter(subprocess.run(script, shell=True, env=variables, capture_output=True, text=True).stdout.splitlines())

    assert read_greeting(lines, "x")
    assert list(lines) == ["its run"]


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
